const PAUSE_FACTOR = 5;

/**
 * Work that runs soon after each call, once at a time. What is asked for all the time runs again and again, with pauses that are
 * longer than it took, so that it costs the gateway little.
 */
export function paced(work: () => Promise<void>): () => Promise<void> {
  let state: 'idle' | 'running' | 'again' = 'idle';
  return async () => {
    if (state !== 'idle') {
      state = 'again';
      return;
    }
    do {
      state = 'running';
      const began = performance.now();
      await work();
      const pause = PAUSE_FACTOR * (performance.now() - began);
      await new Promise((resolve) => window.setTimeout(resolve, pause));
    } while (isAsked());
    state = 'idle';
  };

  /** Other calls change it while one waits. */
  function isAsked(): boolean {
    return state === 'again';
  }
}
