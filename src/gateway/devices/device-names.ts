import { LONGEST_NAME } from '../../management/resources/device.ts';

/** What a device may bind are names that end in `-<name>`, so no name may be the end of another one. */
interface Taken {
  names: ReadonlySet<string>;
  /** The ends of all names: `cabinet-7` has the end `7`. */
  ends: ReadonlySet<string>;
}

/**
 * Whether a device can have a name beside those in use: it may neither be the end of one of them, nor the other way
 * round. Otherwise, one device could bind the addresses of the other.
 */
export function isFree(name: string, inUse: readonly string[]): boolean {
  return isFreeAmong(name, takenBy(inUse));
}

/**
 * The wanted name, with a number if it is not free.
 *
 * @param wanted a valid device name
 * @param inUse all names at the site
 * @param isEnd whether a name directly below the site ends in `-<name>`
 */
export function freeName(
  wanted: string,
  inUse: readonly string[],
  isEnd: (name: string) => boolean = () => false,
): string {
  const taken = takenBy(inUse);
  if (isFreeAmong(wanted, taken) && !isEnd(wanted)) return wanted;
  for (let number = 2; ; number += 1) {
    const suffix = `-${number}`;
    const name = wanted.slice(0, LONGEST_NAME - suffix.length).replace(/-$/, '') + suffix;
    if (isFreeAmong(name, taken) && !isEnd(name)) return name;
  }
}

function takenBy(inUse: readonly string[]): Taken {
  return { names: new Set(inUse), ends: new Set(inUse.flatMap(endsOf)) };
}

function isFreeAmong(name: string, { names, ends }: Taken): boolean {
  return !names.has(name) && !ends.has(name) && !endsOf(name).some((end) => names.has(end));
}

/** What follows the hyphens of a name: `a-b-c` has the ends `b-c` and `c`. */
export function endsOf(name: string): string[] {
  const parts = name.split('-');
  return parts.slice(1).map((_, at) => parts.slice(at + 1).join('-'));
}
