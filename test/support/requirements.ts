import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import type { TestOptions } from 'vitest';

declare module 'vitest' {
  interface TaskMeta {
    /** Why the test or suite is skipped on this machine. */
    missing?: string;
  }
}

/** A test's missing requirement on this machine; null when nothing is missing. */
export type Missing = string | null;

/** Options of a test or suite with further requirements. The last line of a run counts skipped tests by reason. */
export function unless(missing: Missing): TestOptions {
  return missing === null ? {} : { skip: true, meta: { missing } };
}

/** The first missing requirement. */
export function firstOf(...missing: Missing[]): Missing {
  return missing.find((reason) => reason !== null) ?? null;
}

/** @param args arguments with which the program succeeds immediately */
export function programMissing(name: string, ...args: string[]): Missing {
  return spawnSync(name, args, { stdio: 'ignore' }).status === 0 ? null : `${name} is not installed`;
}

export const NO_LINUX: Missing = process.platform === 'linux' ? null : 'Linux is required';
export const NO_ROOT: Missing = process.geteuid?.() === 0 ? null : 'root is required';
export const NO_CURL: Missing = programMissing('curl', '--version');
export const NO_DEV_FULL: Missing = existsSync('/dev/full') ? null : '/dev/full is required';
export const NO_IPV6: Missing = Object.values(networkInterfaces()).some((found) =>
  found?.some(({ address }) => address === '::1'),
)
  ? null
  : 'IPv6 on the loopback is required';
