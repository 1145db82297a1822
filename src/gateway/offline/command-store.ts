import { join } from 'node:path';
import { createLog } from '../../lib/log/log.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { openPresentCa } from '../certificates/local-ca/shared-ca.ts';
import { BY_COMMAND, COMMAND_KEY, issueDashboardCode } from '../store/command-access.ts';
import {
  expectGateway,
  openForChanges,
  openGatewayDatabase,
  openGatewayStore,
  type StoreLocation,
} from '../store/open-gateway-store.ts';
import { sqlEngine } from '../store/sql/sql-engine.ts';
import { type Store, timestamp } from '../store/store.ts';
import { issueApiKey } from '../store/tokens.ts';

export {
  changeAccountKey,
  REVOCATION_REASONS,
  type RevocationReason,
  revokeCertificate,
} from '../certificates/certificate-errands.ts';
export { emailTarget, notifyByEmail } from '../messages/notify-by-email.ts';
export { resumeVersion, stoppedVersions, stopVersion } from '../store/agent-updates.ts';
export { endsSoon, waitingRevocation } from '../store/domains.ts';
export { expectGateway, type StoreLocation } from '../store/open-gateway-store.ts';
export type { Row, Store } from '../store/store.ts';
export { undecryptable, undecryptableCounts } from '../store/stored-secrets.ts';
export { noteFailedUpdate } from '../store/update-facts.ts';
export { askGatewayHere } from './gateway-here.ts';
export { caReport, casForCode, retireCa, rotateCa } from './own-cas.ts';

/**
 * Opens the store of a gateway that was started before, running or not, for a command that may change it.
 *
 * @throws {OperatorError} exit code 2 where there is none: in the wrong folder, a command must not create another one
 */
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

/** Opens the store of a gateway, running or not, to read it only. @throws {OperatorError} when that fails */
export function readStore<T>(location: StoreLocation, read: (store: Store) => T): T {
  const store = openGatewayStore(location, 'refuse');
  try {
    return read(store);
  } finally {
    store.database.close();
  }
}

/** What is wrong with a gateway's database, as its engine says; needs no key. @throws {OperatorError} when it cannot be opened */
export function databaseProblems(location: StoreLocation): string[] {
  const database = openGatewayDatabase(location);
  try {
    return database.problems();
  } finally {
    database.close();
  }
}

/** Creates what the first start of a gateway creates, so that its key and its CA are known before. Nobody else may use the folder. */
export async function createGatewayData(settings: GatewayServerSettings): Promise<void> {
  const folder = join(settings.dataDir, 'gateway');
  const log = await createLog('silent', 'json');
  const { store, close } = await openForChanges(settings, { older: 'upgrade', log });
  await openPresentCa(folder, store, log);
  await close();
}

/** Loads all code that a store needs, for a command that then gives up the right to read it. */
export async function loadStoreCode(): Promise<void> {
  sqlEngine();
  await import('../store/shared/join-shared.ts');
  await import('pg');
}

/** Creates an API key. @returns its id, and the key itself, which is not stored */
export async function createApiKey(store: Store, description: string): Promise<{ id: string; token: string }> {
  const { row, token } = await store.database.write(() => issueApiKey(store, { description }), BY_COMMAND);
  return { id: row.id, token };
}

/** Longer than a command takes; a command that was killed leaves its key behind. */
const LEFT_BEHIND_MS = 600_000;

/** Lets a command on the gateway's machine call the API of the running gateway, with a key that is valid only meanwhile. */
export async function withCommandKey<T>(store: Store, work: (apiKey: string) => Promise<T>): Promise<T> {
  const { database, apiKeys } = store;
  const { row, token } = await database.write(() => {
    const before = timestamp(Date.now() - LEFT_BEHIND_MS);
    database.run('DELETE FROM api_keys WHERE metadata = ? AND created_at < ?', [COMMAND_KEY, before]);
    return issueApiKey(store, { description: 'a command on this machine', metadata: COMMAND_KEY });
  }, null);
  try {
    return await work(token);
  } finally {
    await database.write(() => apiKeys.delete(row.id), null);
  }
}

/** A one-time code with which a command signs a browser in to the dashboard, or asks it something. Nothing is written. */
export function dashboardCode({ box }: Store, now: number): string {
  return issueDashboardCode(box, now);
}
