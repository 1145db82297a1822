/** The parts of a pattern: literal text, single characters and classes, the start and end of groups, repetitions. */
const PART =
  /\\Q.*?(?:\\E|$)|\\[pPx]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*\]|\(\?[a-zA-Z-]*\)|\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:))?|\{\d{1,4}(?:,\d{0,4})?\}|./gs;

/**
 * Counts the characters of a pattern with its repetitions expanded: compiling takes time and memory for each of them, and
 * `a{1000}` has only seven.
 */
export function expandedSize(pattern: string): number {
  const outer: number[] = [];
  let [size, last] = [0, 0];
  for (const [part] of pattern.matchAll(PART)) {
    if (part.startsWith('(') && !part.endsWith(')')) {
      outer.push(size);
      [size, last] = [0, 0];
    } else if (part === ')') {
      last = size;
      size += outer.pop() ?? 0;
    } else if (part.length > 2 && part.startsWith('{')) {
      const times = Math.max(...part.slice(1, -1).split(',').map(Number));
      size += last * (times - 1);
      last *= times;
    } else {
      last = part.startsWith('\\Q') ? part.length - 2 : 1;
      size += last;
    }
  }
  return size;
}
