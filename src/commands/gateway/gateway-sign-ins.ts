import { endSignIns } from '../../gateway/sign-in/create-sign-in.ts';
import type { Store } from '../../gateway/store/store.ts';
import { OperatorError } from '../../lib/errors.ts';
import { print } from '../output.ts';

export interface EndSignInsOptions {
  host?: string;
  issuer?: string;
  subject?: string;
}

/**
 * Ends the sign-ins at a host, or those of one person at all hosts, also at a running gateway.
 *
 * @throws {OperatorError} exit code 2 when the options name neither
 */
export async function endGatewaySignIns(store: Store, { host, issuer, subject }: EndSignInsOptions): Promise<void> {
  const isPerson = issuer !== undefined && subject !== undefined;
  if ((host === undefined) !== isPerson || (host !== undefined && (issuer ?? subject) !== undefined)) {
    throw new OperatorError('name a host with --host, or a person with --issuer and --subject', 2);
  }
  const target = { host: host?.toLowerCase() ?? null, issuer: issuer ?? null, subject: subject ?? null };
  await store.database.write(() => endSignIns(store, target));
  print(`sign-ins ${host === undefined ? `of ${subject}` : `at ${host}`} ended`);
}
