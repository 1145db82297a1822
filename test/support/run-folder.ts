import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';

const PREFIX = 'run-';

/**
 * Gives all temporary folders of a run one parent, which goes away at its end: a test that failed or timed out may have left
 * some. The name is short, as the paths of Unix sockets are limited.
 */
export function setup(): (() => void) | undefined {
  // Vitest calls this for each project.
  if (basename(tmpdir()).startsWith(PREFIX)) return undefined;
  const folder = mkdtempSync(join(tmpdir(), PREFIX));
  // Like /tmp: some programs run as another user.
  chmodSync(folder, 0o1777);
  process.env.TMPDIR = folder;
  return () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
}
