/** An agent can ask for more; this bounds how long a dead session stays online, in milliseconds. */
const MAX_TIMEOUT_MS = 600_000;
/** Tolerated delay beyond what the agent itself tolerates. */
const SLACK_MS = 1_000;

/**
 * Detects agents whose heartbeats stop: after `close()`, `@ngrok/ngrok` 1.7.0 neither says goodbye nor closes the socket,
 * it just falls silent.
 *
 * @param agreed interval and tolerance that the agent sent when it authenticated, in milliseconds
 * @param lastReadAt when the last bytes arrived, in milliseconds of `performance.now()`; any frame counts
 * @returns stops watching
 */
export function watchHeartbeats(
  agreed: { interval: number; tolerance: number },
  lastReadAt: () => number,
  onTimeout: () => void,
): () => void {
  const timeoutMs = Math.min(agreed.interval + agreed.tolerance + SLACK_MS, MAX_TIMEOUT_MS);
  let timer: NodeJS.Timeout | undefined;
  let immediate: NodeJS.Immediate | undefined;
  const left = () => lastReadAt() + timeoutMs - performance.now();
  const check = () => {
    const ms = left();
    if (ms > 0) timer = setTimeout(check, ms).unref();
    // Timers run before sockets are read: after a stall, heartbeats may still wait there.
    else immediate = setImmediate(judge);
  };
  const judge = () => {
    if (left() > 0) check();
    else onTimeout();
  };
  check();
  return () => {
    clearTimeout(timer);
    clearImmediate(immediate);
  };
}
