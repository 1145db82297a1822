import type { Clock } from '../../lib/clock.ts';
import { withOwnSignal, withSignal } from '../../lib/deadline.ts';
import type { ProbeAnswer } from './probe.ts';

/** Tries once whether anybody answers; ends when the signal aborts. */
export type Probe = (signal: AbortSignal) => Promise<ProbeAnswer>;

/** Milliseconds from one probe to the next: uniform in between, so that a fleet never knocks in step. */
const MIN_PAUSE_MS = 1900;
const MAX_PAUSE_MS = 2600;
/** Milliseconds that one probe may take; with the shortest pause, eight probes are under way at most. */
const PROBE_DEADLINE_MS = 15_000;

/**
 * Waits until somebody answers, however long that takes. Probes start every two seconds or so and may overlap: in
 * front of a network that swallows packets, TCP by itself repeats its first packet after 1, 3, 7, 15, 31 and 63 s,
 * and would notice the end of a long outage up to a minute late. As nobody answers, nobody is burdened.
 *
 * @param onFailure hears of every probe that found nobody
 * @returns the first answer
 * @throws AbortError when the signal aborts
 */
export async function untilReachable(
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
      const pace = async () => {
        for (;;) {
          void launch();
          await clock.sleep(MIN_PAUSE_MS + clock.random() * (MAX_PAUSE_MS - MIN_PAUSE_MS), over);
        }
      };
      pace().catch(reject);
    });
  });
}
