import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { firstOf, type Missing, NO_LINUX, NO_ROOT, programMissing } from '../../support/requirements.ts';

const run = promisify(execFile);
const CACHE = 'node_modules/.cache/debian-roots';

/** What a Debian needs to boot, and to be a device of a test. */
export const MACHINE_PACKAGES = ['systemd', 'systemd-sysv', 'dbus', 'curl', 'ca-certificates', 'iproute2', 'procps'];

export const NO_DEBIAN_ROOT: Missing = firstOf(
  NO_LINUX,
  NO_ROOT,
  ...['mmdebstrap', 'apt-ftparchive', 'gpg'].map((program) => programMissing(program, '--version')),
);

/**
 * The file system of a small Debian. It is made once, with Debian's packages of that day; delete the folder to renew it.
 *
 * @param include packages besides the essential ones
 * @returns its folder, which must stay unchanged
 */
export async function debianRoot(suite: string, architecture: string, include: readonly string[]): Promise<string> {
  const packages = createHash('sha256').update(include.join()).digest('hex').slice(0, 8);
  const folder = join(process.cwd(), CACHE, `${suite}-${architecture}-${packages}`);
  if (existsSync(folder)) return folder;
  mkdirSync(CACHE, { recursive: true });
  const work = `${folder}.${process.pid}`;
  const args = ['--variant=minbase', `--architectures=${architecture}`, `--include=${include.join(',')}`];
  try {
    await run('mmdebstrap', [...args, suite, work, 'http://deb.debian.org/debian']);
    renameSync(work, folder);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return folder;
}
