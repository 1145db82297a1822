import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, onTestFinished } from 'vitest';

/** Creates a folder in a test or before each one, and removes it after the test. */
export function temporaryFolder(): string {
  const folder = makeFolder();
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Creates a folder that the tests of a file or of a `describe` share, and removes it after them. */
export function sharedFolder(): string {
  const folder = makeFolder();
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Creates a folder that its caller removes. */
export function makeFolder(): string {
  return mkdtempSync(join(tmpdir(), 'device-agent-test-'));
}
