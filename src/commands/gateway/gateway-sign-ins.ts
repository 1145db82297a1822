import type { Store } from '../../gateway/offline/command-store.ts';
import { endSignIns, MAX_LISTED } from '../../gateway/sign-in/manage-sign-ins.ts';
import { OperatorError } from '../../lib/errors.ts';
import { jsonText, note, print, table } from '../output.ts';

/** Prints the sessions of people who have signed in, newest first. */
export function listSignIns({ applicationSessions, applicationUsers, now }: Store, { json }: { json?: boolean }): void {
  const sessions = applicationSessions.lasting(now(), null, MAX_LISTED, {}).items.map((session) => {
    const user = applicationUsers.get(session.user_id);
    return { ...session, issuer: user?.issuer, subject: user?.subject, email: user?.email, name: user?.name };
  });
  if (json) return void print(jsonText(sessions));
  if (sessions.length === 0) return void note('Nobody has signed in.');
  const rows = sessions.map(({ created_at, email, name, public_url, ip_address, issuer, subject }) => [
    created_at,
    email || name || '',
    public_url,
    ip_address,
    issuer ?? '',
    subject ?? '',
  ]);
  print(table(['SINCE', 'WHO', 'AT', 'ADDRESS', 'ISSUER', 'SUBJECT'], rows));
}

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
  const person = issuer !== undefined && subject !== undefined ? { issuer, subject } : null;
  const target = host === undefined ? person : (issuer ?? subject) === undefined ? { host: host.toLowerCase() } : null;
  if (target === null) throw new OperatorError('name a host with --host, or a person with --issuer and --subject', 2);
  await store.database.write(() => endSignIns(store, target));
  print(`sign-ins ${host === undefined ? `of ${subject}` : `at ${host}`} ended`);
}
