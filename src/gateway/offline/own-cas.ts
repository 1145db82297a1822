import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { OperatorError } from '../../lib/errors.ts';
import { explainUnreadable } from '../../lib/files/durable-write.ts';
import { createLog } from '../../lib/log/log.ts';
import { caIdOf } from '../../lib/tls/pinned-chain.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import {
  beginCaChange,
  CA_CERTIFICATE,
  type CaChange,
  caChange,
  endCa,
  nextCa,
} from '../certificates/local-ca/ca-rotation.ts';
import { makeCa } from '../certificates/local-ca/local-ca.ts';
import { openPresentCa } from '../certificates/local-ca/shared-ca.ts';
import type { Store } from '../store/store.ts';

interface ListedCa {
  readonly id: string;
  readonly state: 'present' | 'next';
  /** SHA-256 of its certificate, as OpenSSL shows it. */
  readonly fingerprint: string;
  /** RFC 3339. */
  readonly valid_until: string;
}

/** The CAs of a gateway, and how far a change of them is. */
interface CaReport {
  readonly cas: readonly ListedCa[];
  /** Null: the CA is not being changed. */
  readonly change: CaChange | null;
}

type Location = Pick<GatewayServerSettings, 'dataDir'>;

const folderOf = ({ dataDir }: Location) => join(dataDir, 'gateway');

/** The CAs for a code with which devices join. @throws {OperatorError} when the gateway has none yet */
export function casForCode(location: Location, { database }: Store): { caPem: string; nextCaPem: string | null } {
  return { caPem: database.fact(CA_CERTIFICATE) ?? caFileIn(location), nextCaPem: nextCa(database)?.caPem ?? null };
}

function caFileIn(location: Location): string {
  const file = join(folderOf(location), 'ca.pem');
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw explainUnreadable(file, error);
  }
}

export function caReport(location: Location, store: Store): CaReport {
  const { caPem, nextCaPem } = casForCode(location, store);
  return {
    cas: [listed(caPem, 'present'), ...(nextCaPem === null ? [] : [listed(nextCaPem, 'next')])],
    change: caChange(store),
  };
}

function listed(pem: string, state: ListedCa['state']): ListedCa {
  const certificate = new X509Certificate(pem);
  const { fingerprint256: fingerprint, validTo } = certificate;
  return { id: caIdOf(certificate), state, fingerprint, valid_until: new Date(validTo).toISOString() };
}

/**
 * Begins a change of the CA, while the gateway runs or not. It can be repeated: the change that was begun goes on.
 *
 * @param endsAt when the present CA ends; null: by a command; undefined: as before
 * @returns whether it was begun just now
 */
export async function rotateCa(location: Location, store: Store, endsAt: string | null | undefined): Promise<boolean> {
  // One that is due is renewed first.
  await openPresentCa(folderOf(location), store, await createLog('silent', 'json'));
  return beginCaChange(store, await makeCa(), endsAt);
}

/**
 * Ends the present CA, while the gateway runs or not: the next one takes its place. It can be repeated when it was interrupted.
 *
 * @param losesDevices whether it ends though devices do not trust the next one yet
 * @throws {OperatorError} when the CA is not being changed, or such devices would be lost
 */
export async function retireCa(location: Location, store: Store, losesDevices: boolean): Promise<CaReport> {
  const log = await createLog('silent', 'json');
  // Puts the files in place that an interrupted one has not.
  const present = await openPresentCa(folderOf(location), store, log);
  const { change } = caReport(location, store);
  if (change === null) throw new OperatorError('the CA is not being changed: begin with "gateway ca rotate"', 2);
  const { missing } = change;
  if (missing.length > 0 && !losesDevices) {
    const some = missing.slice(0, 5).join(', ');
    const more = missing.length > 5 ? ` and ${missing.length - 5} more` : '';
    throw new OperatorError(
      `${missing.length} of the devices do not trust the next CA yet: ${some}${more}. They could not come back without joining ` +
        'again; wait until they have been online for a day, on a metered link for a week, or end the CA all the same with --lose-devices',
      2,
    );
  }
  await endCa(store, present);
  await openPresentCa(folderOf(location), store, log);
  return caReport(location, store);
}
