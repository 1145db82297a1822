/** A range of ports that includes both ends. */
export interface PortRange {
  first: number;
  last: number;
}

/**
 * Parses a range such as `20000-20999`, or a single port.
 *
 * @throws {Error} for any other text
 */
export function parsePortRange(text: string): PortRange {
  const [, first = '', last = first] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  const range = { first: Number(first), last: Number(last) };
  if (range.first < 1 || range.last > 65_535 || range.first > range.last) throw new Error('not a range of ports');
  return range;
}

/** The range as {@link parsePortRange} reads it. */
export function describePortRange({ first, last }: PortRange): string {
  return first === last ? String(first) : `${first}-${last}`;
}

/** Whether one of the ranges has the port. */
export function isWithin(port: number, ranges: readonly PortRange[]): boolean {
  return ranges.some(({ first, last }) => port >= first && port <= last);
}

/** The ports that two ranges have in common: one range, or none. */
export function commonPorts(one: PortRange, other: PortRange): PortRange[] {
  const [first, last] = [Math.max(one.first, other.first), Math.min(one.last, other.last)];
  return first <= last ? [{ first, last }] : [];
}
