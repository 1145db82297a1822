/** Parts of a pattern: a literal run, what stands for one character, a group's beginning and end, a count. */
const PART =
  /\\Q.*?(?:\\E|$)|\\[pPx]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*\]|\(\?[a-zA-Z-]*\)|\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:))?|\{\d{1,4}(?:,\d{0,4})?\}|./gs;

/**
 * How many characters a pattern stands for once its repetitions are written out, as they are when it is compiled: that
 * takes time and memory for each, and `a{1000}` is seven characters.
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
