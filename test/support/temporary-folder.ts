import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';

/** Makes a folder and removes it when the test ends. */
export function temporaryFolder(): string {
  const [folder, remove] = makeFolder();
  onTestFinished(remove);
  return folder;
}

/** Makes a folder that outlives a test; the second function removes it. */
export function makeFolder(): [folder: string, remove: () => void] {
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-test-'));
  return [folder, () => rmSync(folder, { recursive: true, force: true })];
}
