import type { Connection } from '../../agent-protocol/connection.ts';

/** An agent may be silent for so much longer than it has said: it gives its gateway little less. */
const TOLERANCE_MS = 10_000;
const LOOK_MS = 2_000;
/** While clients wait, an agent that is silent for so long is asked; agents of this project say something meanwhile. */
const ASK_MS = 4_000;
/** Then it has this long. */
const ANSWER_MS = 4_000;
/** So long after bytes for a client, more are expected: longer than it takes to notice that none come. */
const MORE_MS = ASK_MS + LOOK_MS + 500;

/**
 * Detects that an agent has fallen silent whose heartbeats are far apart. While its clients wait it is asked, and has no more
 * time than one with many heartbeats.
 *
 * @returns the stop
 */
export function watchPaced(
  intervalMs: number,
  connection: Pick<Connection, 'lastReadAt' | 'use'>,
  then: { ask(): void; onTimeout(reason: string): void },
): () => void {
  let timer: NodeJS.Timeout | undefined;
  let immediate: NodeJS.Immediate | undefined;
  let askedAt: number | null = null;
  const problem = (): string | null => {
    const now = performance.now();
    const silentMs = now - connection.lastReadAt;
    if (askedAt !== null && connection.lastReadAt >= askedAt) askedAt = null;
    if (silentMs >= intervalMs + TOLERANCE_MS) return 'heartbeat timed out';
    if (askedAt !== null) return now - askedAt >= ANSWER_MS ? 'the agent does not answer' : null;
    if (silentMs < ASK_MS || !connection.use.isBusy(now, MORE_MS)) return null;
    askedAt = now;
    then.ask();
    return null;
  };
  const look = () => {
    // Timers run before sockets are read: after a stall, heartbeats may still wait there.
    if (problem() === null) timer = setTimeout(look, LOOK_MS).unref();
    else immediate = setImmediate(judge);
  };
  const judge = () => {
    const reason = problem();
    if (reason === null) look();
    else then.onTimeout(reason);
  };
  look();
  return () => {
    clearTimeout(timer);
    clearImmediate(immediate);
  };
}
