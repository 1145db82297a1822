import { readFileSync } from 'node:fs';

/** The number of file descriptors that this process may have open; infinite where the system does not say. */
export function descriptorLimit(): number {
  if (process.platform !== 'linux') return Number.POSITIVE_INFINITY;
  const [, limit] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
  return limit === undefined ? Number.POSITIVE_INFINITY : Number(limit);
}
