import { execFileSync, spawnSync } from 'node:child_process';
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { hasErrno } from '../../src/lib/errors.ts';
import { firstOf, type Missing, NO_LINUX, NO_ROOT } from './requirements.ts';

/** Why this machine cannot mount file systems; null when it can. */
export const NO_MOUNT: Missing = firstOf(NO_LINUX, NO_ROOT) ?? mountRefused();

function mountRefused(): Missing {
  const folder = mkdtempSync(join(tmpdir(), 'agent-mount-'));
  try {
    execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', folder], { stdio: 'ignore' });
    execFileSync('umount', [folder]);
    return null;
  } catch {
    return 'permission to mount is required';
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Why this machine cannot simulate failing disks; null when it can. */
export const NO_FAILING_DISK: Missing = NO_MOUNT ?? loopRefused();

function loopRefused(): Missing {
  const folder = mkdtempSync(join(tmpdir(), 'agent-loop-'));
  try {
    format(join(folder, 'image'));
    mkdirSync(join(folder, 'disk'));
    mountImage(join(folder, 'image'), join(folder, 'disk'));
    execFileSync('umount', [join(folder, 'disk')]);
    return null;
  } catch {
    return 'mkfs.ext4 and loop devices are required';
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function format(image: string): void {
  writeFileSync(image, '');
  truncateSync(image, 16 << 20);
  execFileSync('mkfs.ext4', ['-q', '-F', image], { stdio: 'ignore' });
}

function mountImage(image: string, path: string): void {
  execFileSync('mount', ['-o', 'loop,errors=remount-ro', image, path], { stdio: 'ignore' });
}

/** A disk that fails like an SD card: all writes fail suddenly, also to open files. */
export class FailingDisk {
  private constructor(
    readonly path: string,
    private readonly image: string,
  ) {}

  static mount(): FailingDisk {
    const folder = mkdtempSync(join(tmpdir(), 'agent-failing-'));
    const [path, image] = [join(folder, 'disk'), join(folder, 'image')];
    mkdirSync(path);
    format(image);
    mountImage(image, path);
    onTestFinished(() => {
      execFileSync('umount', ['-l', path]);
      rmSync(folder, { recursive: true, force: true });
    });
    return new FailingDisk(path, image);
  }

  /** Fills the disk, but for so many KiB. */
  fillTo(freeKiB: number): () => void {
    const filler = join(this.path, 'filler');
    let kibibytes = 0;
    try {
      for (; ; kibibytes += 1) appendFileSync(filler, Buffer.alloc(1024, 1));
    } catch (error) {
      if (!hasErrno(error, 'ENOSPC')) throw error;
    }
    truncateSync(filler, (kibibytes - freeKiB) * 1024);
    return () => rmSync(filler);
  }

  fail(): void {
    execFileSync('mount', ['-o', 'remount,abort', this.path]);
  }

  /** Repairs the disk like an operator; it must not be in use. */
  repair(): void {
    execFileSync('umount', [this.path]);
    // 1: errors were corrected.
    const { status, stderr } = spawnSync('e2fsck', ['-fy', this.image], { encoding: 'utf8' });
    if (status === null || status > 1) throw new Error(`e2fsck: ${stderr}`);
    mountImage(this.image, this.path);
  }
}

/** Appends pieces to a file until the disk is full. */
function fillUp(file: string, bytes: number): void {
  try {
    for (;;) appendFileSync(file, Buffer.alloc(bytes, 1));
  } catch (error) {
    if (!hasErrno(error, 'ENOSPC')) throw error;
  }
}

/** A separate disk, which is removed after the test. */
export class Disk {
  private constructor(readonly path: string) {}

  /** @param options mount options, for example `size=64k` */
  static mount(options = 'size=1m'): Disk {
    const path = mkdtempSync(join(tmpdir(), 'agent-disk-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', path]);
    onTestFinished(() => {
      execFileSync('umount', ['-l', path]);
      rmSync(path, { recursive: true, force: true });
    });
    return new Disk(path);
  }

  /** Fills the disk. @returns what frees it again */
  fill(): () => void {
    const filler = join(this.path, 'filler');
    // Pieces as small as a page: less is left than anything needs.
    fillUp(filler, 1 << 20);
    fillUp(filler, 4096);
    return () => rmSync(filler);
  }

  /** Remounts the disk: read-only, like the kernel after a failure, or writable, like an operator. */
  remount(mode: 'ro' | 'rw'): void {
    execFileSync('mount', ['-o', `remount,${mode}`, this.path]);
  }
}
