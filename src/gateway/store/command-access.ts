import { issueCode, type OneTimeCodes } from '../../lib/http/one-time-code.ts';
import { createLog } from '../../lib/log/log.ts';
import type { SecretsBox } from '../../lib/secrets-box.ts';
import { expectGateway, openForChanges, type StoreLocation } from './open-gateway-store.ts';
import type { Caller } from './sql/database.ts';
import { sqlEngine } from './sql/sql-engine.ts';
import { type Store, timestamp } from './store.ts';
import { issueApiKey } from './tokens.ts';

/** Stands for a command on the gateway's machine where the id of an API key would be. */
export const COMMAND = 'gateway';
export const BY_COMMAND: Caller = { by: COMMAND, from: null };
/** What one-time codes for the dashboard are sealed for; see {@link SecretsBox.keyFor}. */
const SIGN_IN_PURPOSE = 'dashboard sign-in';

/** Opens the store of a gateway that was started before, for a command: in the wrong folder, it must not create another one. */
export async function withStore<T>(location: StoreLocation, work: (store: Store) => Promise<T> | T): Promise<T> {
  // A machine that has none yet may be given the shared one.
  if ((location.databaseUrl ?? null) === null) expectGateway(location);
  const { store, close } = await openForChanges(location, { older: 'refuse', log: await createLog('silent', 'json') });
  store.database.actFor(BY_COMMAND);
  try {
    return await work(store);
  } finally {
    await close();
  }
}

/** Loads all code that a store needs, for a command that then gives up the right to read it. */
export async function loadStoreCode(): Promise<void> {
  sqlEngine();
  await import('./shared/join-shared.ts');
  await import('pg');
}

/** Marks the API keys of commands on the gateway's machine. */
const MARK = 'device-agent gateway command';
/** Longer than a command takes; a command that was killed leaves its key behind. */
const LEFT_BEHIND_MS = 600_000;

/** Lets a command on the gateway's machine call the API of the running gateway, with a key that is valid only meanwhile. */
export async function withCommandKey<T>(store: Store, work: (apiKey: string) => Promise<T>): Promise<T> {
  const { database, apiKeys } = store;
  const { row, token } = await database.write(() => {
    const before = timestamp(Date.now() - LEFT_BEHIND_MS);
    database.run('DELETE FROM api_keys WHERE metadata = ? AND created_at < ?', [MARK, before]);
    return issueApiKey(store, { description: 'a command on this machine', metadata: MARK });
  }, null);
  try {
    return await work(token);
  } finally {
    await database.write(() => apiKeys.delete(row.id), null);
  }
}

/** Who made a change, for histories: the id of the API key, or `gateway` for a command on its machine. */
export function keyHolder({ apiKeys }: Pick<Store, 'apiKeys'>, keyId: string): string {
  return apiKeys.get(keyId)?.metadata === MARK ? COMMAND : keyId;
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
