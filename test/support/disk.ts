import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';

/** Whether this user may mount file systems here. */
export const mayMount = (() => {
  if (process.platform !== 'linux' || process.geteuid?.() !== 0) return false;
  const folder = mkdtempSync(join(tmpdir(), 'agent-mount-'));
  try {
    execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', folder], { stdio: 'ignore' });
    execFileSync('umount', [folder]);
    return true;
  } catch {
    return false; // a container without the right to
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
})();

/** A disk of its own, which goes away with the test. */
export class Disk {
  private constructor(readonly path: string) {}

  /** @param options of the mount, such as `size=64k` */
  static mount(options = 'size=1m'): Disk {
    const path = mkdtempSync(join(tmpdir(), 'agent-disk-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', path]);
    onTestFinished(() => {
      execFileSync('umount', ['-l', path]);
      rmSync(path, { recursive: true, force: true });
    });
    return new Disk(path);
  }

  /** What the kernel does to a disk that fails, and what the operator does then. */
  remount(mode: 'ro' | 'rw'): void {
    execFileSync('mount', ['-o', `remount,${mode}`, this.path]);
  }
}
