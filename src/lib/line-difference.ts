export interface LineChange {
  /** `-`: only in the text before; `+`: only in the text after. */
  readonly sign: ' ' | '-' | '+';
  readonly line: string;
}

/** Beyond so many changed lines, texts are not compared further: the time grows with the square. */
const MAX_EDITS = 500;
/** Equal lines that are shown before and after changes. */
const CONTEXT = 3;

/** What leads from one text to another, line by line: with few changes the fewest (Myers, 1986). */
export function lineDifference(before: readonly string[], after: readonly string[]): LineChange[] {
  const isEqual = (a: number, b: number) => before[a] === after[b];
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && isEqual(start, start)) start++;
  let end = 0;
  while (end < shorter - start && isEqual(before.length - 1 - end, after.length - 1 - end)) end++;
  const same = (line: string): LineChange => ({ sign: ' ', line });
  return [
    ...before.slice(0, start).map(same),
    ...between(before.slice(start, before.length - end), after.slice(start, after.length - end)),
    ...before.slice(before.length - end).map(same),
  ];
}

function between(before: readonly string[], after: readonly string[]): LineChange[] {
  const reached = reachedBy(before, after);
  const removed = (line: string): LineChange => ({ sign: '-', line });
  const added = (line: string): LineChange => ({ sign: '+', line });
  if (reached === null) return [...before.map(removed), ...after.map(added)];
  const changes: LineChange[] = [];
  let [a, b] = [before.length, after.length];
  for (let edits = reached.length - 1; edits >= 0; edits--) {
    const furthest = reached[edits - 1];
    const diagonal = a - b;
    const isAdded = edits > 0 && furthest !== undefined && comesFromAbove(furthest, diagonal, edits);
    const previous = isAdded ? diagonal + 1 : diagonal - 1;
    const [fromA, fromB] = furthest === undefined ? [0, 0] : placeOn(furthest, previous, edits - 1);
    while (a > fromA && b > fromB && before[a - 1] === after[b - 1]) {
      changes.push({ sign: ' ', line: before[a - 1] ?? '' });
      a -= 1;
      b -= 1;
    }
    if (furthest === undefined) break;
    changes.push(isAdded ? added(after[b - 1] ?? '') : removed(before[a - 1] ?? ''));
    [a, b] = [fromA, fromB];
  }
  return changes.reverse();
}

/** For each number of edits, how far into the text before each diagonal gets with them; null: it takes too many. */
function reachedBy(before: readonly string[], after: readonly string[]): Int32Array[] | null {
  const numbers = new Map<string, number>();
  const numbered = (lines: readonly string[]) =>
    Int32Array.from(lines, (line) => {
      const number = numbers.get(line) ?? numbers.size;
      numbers.set(line, number);
      return number;
    });
  const [from, to] = [numbered(before), numbered(after)];
  const reached: Int32Array[] = [];
  for (let edits = 0; edits <= Math.min(MAX_EDITS, from.length + to.length); edits++) {
    const last = reached.at(-1);
    const furthest = new Int32Array(2 * edits + 1);
    reached.push(furthest);
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      let a = last === undefined ? 0 : firstOn(last, diagonal, edits);
      while (a < from.length && a - diagonal < to.length && from[a] === to[a - diagonal]) a++;
      furthest[diagonal + edits] = a;
      if (a >= from.length && a - diagonal >= to.length) return reached;
    }
  }
  return null;
}

/** Where a diagonal begins, with one more edit than those that have got so far. */
function firstOn(last: Int32Array, diagonal: number, edits: number): number {
  return comesFromAbove(last, diagonal, edits)
    ? placeOn(last, diagonal + 1, edits - 1)[0]
    : placeOn(last, diagonal - 1, edits - 1)[0] + 1;
}

/** Whether the last edit adds a line, rather than removes one. */
function comesFromAbove(last: Int32Array, diagonal: number, edits: number): boolean {
  if (diagonal === -edits) return true;
  if (diagonal === edits) return false;
  return placeOn(last, diagonal - 1, edits - 1)[0] < placeOn(last, diagonal + 1, edits - 1)[0];
}

function placeOn(furthest: Int32Array, diagonal: number, edits: number): [a: number, b: number] {
  const a = furthest[diagonal + edits] ?? 0;
  return [a, a - diagonal];
}

/** The changed lines with their signs and some equal ones around them, as `diff -u` shows them; empty: nothing has changed. */
export function unified(changes: readonly LineChange[]): string[] {
  const isChanged = changes.map(({ sign }) => sign !== ' ');
  const shown: string[] = [];
  let [a, b] = [0, 0];
  for (let at = 0; at < changes.length; ) {
    const next = isChanged.indexOf(true, at);
    if (next === -1) break;
    const start = Math.max(at, next - CONTEXT);
    const end = endOfPart(isChanged, next);
    const part = changes.slice(start, end);
    a += start - at;
    b += start - at;
    const [ofA, ofB] = [part.filter(({ sign }) => sign !== '+').length, part.filter(({ sign }) => sign !== '-').length];
    shown.push(`@@ -${rangeOf(a, ofA)} +${rangeOf(b, ofB)} @@`, ...part.map(({ sign, line }) => sign + line));
    a += ofA;
    b += ofB;
    at = end;
  }
  return shown;
}

function endOfPart(isChanged: readonly boolean[], first: number): number {
  let last = first;
  for (;;) {
    const next = isChanged.indexOf(true, last + 1);
    if (next === -1 || next - last > 2 * CONTEXT + 1) return Math.min(isChanged.length, last + 1 + CONTEXT);
    last = next;
  }
}

/** Lines are counted from one; a range without any names the one before it. */
function rangeOf(before: number, count: number): string {
  return `${count === 0 ? before : before + 1},${count}`;
}
