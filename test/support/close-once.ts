import { onTestFinished } from 'vitest';

/** Closes what a test has opened: when the returned function is called, else at the end of the test. */
export function closeOnce(close: () => Promise<void>): () => Promise<void> {
  let isOpen = true;
  const closed = async () => {
    if (isOpen) await close();
    isOpen = false;
  };
  onTestFinished(closed);
  return closed;
}
