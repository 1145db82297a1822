import { backoffCeiling } from '../../lib/time/backoff.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { CertificateIssuer } from './issuing/certificate-issuer.ts';

const CHECK_MS = 10_000;
const RETRY = { baseMs: 60_000, maxMs: 3_600_000 };
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
      try {
        await issuer.doErrands?.(AbortSignal.any([signal, AbortSignal.timeout(ERRANDS_MS)]));
        failures = 0;
      } catch (err) {
        if (signal.aborted) return;
        const wait_ms = backoffCeiling(failures, RETRY);
        log.warn({ err, wait_ms }, 'certificate not revoked, or key of the ACME account not changed');
        failures += 1;
      }
      await clock.sleep(failures === 0 ? CHECK_MS : backoffCeiling(failures - 1, RETRY), signal).catch(() => {});
    }
  };
  const running = issuer.doErrands === undefined ? Promise.resolve() : run();
  return () => {
    stopping.abort();
    return running;
  };
}
