/** A version as packages have it, such as 1.2.3 or 1.3.0-beta.2. */
export const VERSION_PATTERN: RegExp = /^\d{1,6}\.\d{1,6}\.\d{1,6}(?:-[0-9a-z]{1,20}(?:\.[0-9a-z]{1,20}){0,4})?$/;

const ORDER = new Intl.Collator('en', { numeric: true });

/**
 * Compares versions by semver's precedence.
 *
 * @returns below 0 when the first is older, above 0 when it is newer, else 0
 */
export function compareVersions(one: string, other: string): number {
  const [[core = '', suffix], [otherCore = '', otherSuffix]] = [split(one), split(other)];
  const difference = ORDER.compare(core, otherCore);
  if (difference !== 0) return difference;
  // A version without a suffix is newer than those that prepare it.
  if (suffix === undefined || otherSuffix === undefined)
    return Number(otherSuffix !== undefined) - Number(suffix !== undefined);
  return ORDER.compare(suffix, otherSuffix);
}

/** A suffix may have hyphens only in theory: the pattern allows none. */
const split = (version: string): string[] => version.split('-', 2);
