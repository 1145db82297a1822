import { issueCode, type OneTimeCodes } from '../../lib/http/one-time-code.ts';
import type { SecretsBox } from '../../lib/secrets-box.ts';
import type { Caller } from './sql/database.ts';
import type { Store } from './store.ts';

/** Stands for a command on the gateway's machine where the id of an API key would be. */
export const COMMAND = 'gateway';
export const BY_COMMAND: Caller = { by: COMMAND, from: null };
/** What one-time codes for the dashboard are sealed for; see {@link SecretsBox.keyFor}. */
const SIGN_IN_PURPOSE = 'dashboard sign-in';

/** Marks the API keys of commands on the gateway's machine. */
export const COMMAND_KEY = 'device-agent gateway command';

/** Who made a change, for histories: the id of the API key, or `gateway` for a command on its machine. */
export function keyHolder({ apiKeys }: Pick<Store, 'apiKeys'>, keyId: string): string {
  return apiKeys.get(keyId)?.metadata === COMMAND_KEY ? COMMAND : keyId;
}

/** Of a person's code, whose id stands before it. */
const CODE = /^(?:(prs_[0-9A-Za-z]+)-)?([\w-]+)$/;

/** Who signs in to the dashboard by a one-time code. */
export interface UsedDashboardCode {
  /** Null: a command on the gateway's machine. */
  readonly personId: string | null;
  /** Milliseconds since 1970. */
  readonly issuedAt: number;
}

/** @param personId as whom it signs a browser in; null: as a command on the gateway's machine */
export function issueDashboardCode(box: SecretsBox, now: number, personId: string | null = null): string {
  return `${personId === null ? '' : `${personId}-`}${issueCode(keyFor(box, personId), now)}`;
}

/** Uses up a one-time code for the dashboard. @returns null when it is not valid, expired or used */
export function useDashboardCode(box: SecretsBox, codes: OneTimeCodes, text: string): UsedDashboardCode | null {
  const [, personId = null, code = ''] = CODE.exec(text) ?? [];
  const issuedAt = codes.use(keyFor(box, personId), code);
  return issuedAt === null ? null : { personId, issuedAt };
}

/** One of its own for each person: a code signs in as nobody else. */
function keyFor(box: SecretsBox, personId: string | null): string {
  return box.keyFor(personId === null ? SIGN_IN_PURPOSE : `${SIGN_IN_PURPOSE} ${personId}`);
}
