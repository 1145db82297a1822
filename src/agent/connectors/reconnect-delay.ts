import type { Clock } from '../../lib/time/clock.ts';
import { withOwnSignal, withSignal } from '../../lib/time/deadline.ts';
import type { Probe, ProbeAnswer } from './gateway-probe.ts';

/** Milliseconds between probes: uniform in this range, so that a fleet never probes in step. */
const MIN_PAUSE_MS = 1900;
const MAX_PAUSE_MS = 2600;
/** Deadline of one probe; with the shortest pause, at most eight run at a time. */
const PROBE_DEADLINE_MS = 15_000;

/**
 * Probes a gateway about every two seconds until it answers, however long the outage lasts. Probes may overlap: while a
 * network drops packets, TCP repeats its first packet after 1, 3, 7, 15, 31 and 63 s, and alone would notice the end of
 * a long outage up to a minute late. An unreachable gateway has no load from them.
 *
 * @param onFailure called for every probe that fails
 * @returns the first answer
 * @throws AbortError when the signal aborts
 */
export async function waitUntilReachable(
  probe: Probe,
  clock: Clock,
  signal: AbortSignal,
  onFailure: (error: unknown) => void,
): Promise<ProbeAnswer> {
  return withOwnSignal(signal, (over) => {
    return new Promise<ProbeAnswer>((resolve, reject) => {
      const launch = async () => {
        try {
          resolve(await withSignal(probe, 'reaching the gateway', PROBE_DEADLINE_MS, over, clock));
        } catch (error) {
          if (!over.aborted) onFailure(error);
        }
      };
      const launchAll = async () => {
        for (;;) {
          void launch();
          await clock.sleep(MIN_PAUSE_MS + clock.random() * (MAX_PAUSE_MS - MIN_PAUSE_MS), over);
        }
      };
      launchAll().catch(reject);
    });
  });
}
