import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';

/** Creates a folder and removes it after the test. */
export function temporaryFolder(): string {
  const [folder, remove] = makeFolder();
  onTestFinished(remove);
  return folder;
}

/** Creates a folder that outlives a test, and a function that removes it. */
export function makeFolder(): [folder: string, remove: () => void] {
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-test-'));
  return [folder, () => rmSync(folder, { recursive: true, force: true })];
}
