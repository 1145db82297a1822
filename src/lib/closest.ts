/**
 * Finds the candidate that a misspelt word most likely means.
 *
 * @param maxErrors typing errors at most; more than two would suggest unrelated words
 * @returns null without a similar one
 */
export function closest(word: string, candidates: Iterable<string>, maxErrors = 2): string | null {
  let best: { candidate: string; errors: number } | null = null;
  for (const candidate of candidates) {
    const [given, meant] = [plain(word), plain(candidate)];
    const limit = Math.min(maxErrors, Math.floor(candidate.length / 2));
    if (Math.abs(given.length - meant.length) > limit) continue;
    const errors = distance(given, meant);
    if (errors <= limit && (best === null || errors < best.errors)) best = { candidate, errors };
  }
  return best?.candidate ?? null;
}

/** Case and separators are no errors. */
const plain = (word: string): string => word.toLowerCase().replace(/[-_]/g, '');

/** Counts characters that are missing, superfluous, wrong or swapped with their neighbour. */
function distance(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1];
      const [above = 0, left = 0, diagonal = 0] = [row[j], next[j - 1], row[j - 1]];
      let errors = Math.min(above + 1, left + 1, diagonal + (isSame ? 0 : 1));
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (isSwap) errors = Math.min(errors, (before[j - 2] ?? 0) + 1);
      next.push(errors);
    }
    [before, row] = [row, next];
  }
  return row[b.length] ?? 0;
}
