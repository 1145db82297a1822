/** Keys that lie together: what an addition or a removal moves at most. */
const PIECE = 512;

/** Distinct texts in their order. Adding, removing and finding one looks at few others, among any number. */
export class SortedKeys {
  /** Each in order, none of them empty. */
  readonly #pieces: string[][] = [];

  add(key: string): void {
    const at = Math.min(this.#pieceOf(key), this.#pieces.length - 1);
    const piece = this.#pieces[at];
    if (piece === undefined) {
      this.#pieces.push([key]);
      return;
    }
    const place = placeIn(piece, key);
    if (piece[place] === key) return;
    piece.splice(place, 0, key);
    if (piece.length > PIECE) this.#pieces.splice(at + 1, 0, piece.splice(PIECE / 2));
  }

  delete(key: string): void {
    const at = this.#pieceOf(key);
    const piece = this.#pieces[at];
    if (piece === undefined) return;
    const place = placeIn(piece, key);
    if (piece[place] !== key) return;
    piece.splice(place, 1);
    if (piece.length === 0) this.#pieces.splice(at, 1);
  }

  /** Those below a key, the last one first; null: all. They must not change meanwhile. */
  *below(key: string | null): Generator<string> {
    let at = key === null ? this.#pieces.length : this.#pieceOf(key);
    const piece = this.#pieces[at];
    if (key !== null && piece) yield* piece.slice(0, placeIn(piece, key)).reverse();
    for (at -= 1; at >= 0; at -= 1) yield* [...(this.#pieces[at] ?? [])].reverse();
  }

  /** Those that begin with a text, in order. They must not change meanwhile. */
  *startingWith(start: string): Generator<string> {
    for (let at = this.#pieceOf(start); at < this.#pieces.length; at += 1) {
      const piece = this.#pieces[at] ?? [];
      for (let place = placeIn(piece, start); place < piece.length; place += 1) {
        const key = piece[place] as string;
        if (!key.startsWith(start)) return;
        yield key;
      }
    }
  }

  /** The first piece that ends with the key or later; behind the last one: there is none. */
  #pieceOf(key: string): number {
    return firstWhere(this.#pieces.length, (at) => (this.#pieces[at]?.at(-1) as string) >= key);
  }
}

function placeIn(piece: readonly string[], key: string): number {
  return firstWhere(piece.length, (at) => (piece[at] as string) >= key);
}

/** @param holds false up to some place, and true from there on */
function firstWhere(end: number, holds: (at: number) => boolean): number {
  let [low, high] = [0, end];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
