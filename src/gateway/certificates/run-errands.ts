import { X509Certificate } from 'node:crypto';
import { backoffCeiling } from '../../lib/time/backoff.ts';
import { withOwnSignal } from '../../lib/time/deadline.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { AcmeIssuer } from './acme/acme-issuer.ts';
import {
  forgetNextKey,
  forgetRevocation,
  nextAccountKey,
  pendingRevocations,
  REVOCATION_REASONS,
  type RevocationReason,
} from './certificate-errands.ts';
import type { CertificateIssuer } from './issuing/certificate-issuer.ts';

const CHECK_MS = 10_000;
/** Requests that come meanwhile wait as well. */
const RETRY = { baseMs: 60_000, maxMs: 600_000 };
/** Requests to a CA have deadlines of their own; revocations are few. */
const ERRANDS_MS = 5 * 60_000;

/** Does what commands have asked for about certificates, until it is stopped. @returns stops it */
export function runErrands(
  { clock, log }: Pick<GatewayContext, 'clock' | 'log'>,
  issuer: Pick<CertificateIssuer, 'doErrands'>,
): () => Promise<void> {
  const stopping = new AbortController();
  const { signal } = stopping;
  const run = async () => {
    for (let failures = 0; !signal.aborted; ) {
      let wait_ms = CHECK_MS;
      try {
        await issuer.doErrands?.(signal);
        failures = 0;
      } catch (err) {
        if (signal.aborted) return;
        wait_ms = backoffCeiling(failures, RETRY);
        failures += 1;
        log.warn({ err, wait_ms }, 'certificate not revoked, or key of the ACME account not changed');
      }
      await clock.sleep(wait_ms, signal).catch(() => {});
    }
  };
  const running = issuer.doErrands === undefined ? Promise.resolve() : run();
  return () => {
    stopping.abort();
    return running;
  };
}

type Errands = Pick<GatewayContext, 'store' | 'log'>;
type ErrandsCa = Pick<AcmeIssuer, 'revoke' | 'changeAccountKey'>;

/**
 * Does each errand once. One that fails does not stop the others, and one that the CA refuses for good is forgotten.
 *
 * @param load the CA, which is loaded only for an errand
 * @throws the first failure of an errand that is tried again
 */
export async function doPending(
  { store, log }: Errands,
  load: () => Promise<ErrandsCa>,
  outer: AbortSignal,
): Promise<void> {
  const revocations = pendingRevocations(store.database);
  if (revocations.length === 0 && nextAccountKey(store) === null) return;
  const ca = await load();
  await withOwnSignal(outer, async (own) => {
    const signal = AbortSignal.any([own, AbortSignal.timeout(ERRANDS_MS)]);
    // The key first: a CA that has changed it already refuses revocations signed with the old one.
    const errands = [
      () => changeKey({ store, log }, ca, signal),
      ...revocations.map((each) => () => revoke({ store, log }, ca, each, signal)),
    ];
    const failures: unknown[] = [];
    for (const errand of errands) {
      signal.throwIfAborted();
      await errand().catch((error) => failures.push(error));
    }
    if (failures.length > 0) throw failures[0];
  });
}

async function changeKey({ store, log }: Errands, ca: ErrandsCa, signal: AbortSignal): Promise<void> {
  const { database } = store;
  if (nextAccountKey(store) === null) return;
  const reason = await ca.changeAccountKey(signal);
  if (reason === null) return log.info('key of the ACME account changed');
  await database.write(() => forgetNextKey(database));
  log.error({ reason }, 'key of the ACME account not changed: its CA refuses');
}

async function revoke(
  { store, log }: Errands,
  ca: ErrandsCa,
  { certificate, reason: why }: ReturnType<typeof pendingRevocations>[number],
  signal: AbortSignal,
): Promise<void> {
  const { database } = store;
  const { serialNumber: serial, validTo } = new X509Certificate(certificate);
  const forget = () => database.write(() => forgetRevocation(database, certificate));
  if (Date.parse(validTo) < Date.now()) {
    await forget();
    return log.error({ serial }, 'certificate not revoked: it has expired');
  }
  const reason = await ca.revoke(certificate, REVOCATION_REASONS[why as RevocationReason] ?? 0, signal);
  // It may refuse the old key.
  if (reason !== null && nextAccountKey(store) !== null) throw new Error(reason);
  await forget();
  if (reason === null) log.info({ serial }, 'certificate revoked');
  else log.error({ serial, reason }, 'certificate not revoked: its CA refuses');
}
