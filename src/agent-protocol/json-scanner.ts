const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const COMMA = 0x2c;

/** Messages have a few levels. JSON.stringify() overflows the stack at some thousands, which would end the process. */
const MAX_DEPTH = 64;

export interface JsonLimits {
  bytes: number;
  /** Members and elements on all levels. Parsing and validating them takes far longer than reading their bytes. */
  values: number;
}

/**
 * Finds the end of a JSON object that arrives in pieces: SDKs do not half-close the stream after a request (measured
 * with `@ngrok/ngrok` 1.7.0). Each byte is scanned once, so a body sent byte by byte costs no more than one sent whole.
 */
export class JsonScanner {
  #body = Buffer.alloc(0);
  #length = 0;
  #depth = 0;
  #values = 1;
  #inString = false;
  #escaped = false;

  constructor(private readonly limits: JsonLimits) {}

  /**
   * @returns true once the object is complete; the rest of the piece is ignored
   * @throws {SyntaxError} when the bytes cannot become an object within the limits
   */
  push(piece: Buffer): boolean {
    const end = this.#endIn(piece);
    this.#keep(end === null ? piece : piece.subarray(0, end));
    return end !== null;
  }

  get length(): number {
    return this.#length;
  }

  parse(): unknown {
    return JSON.parse(this.#body.toString('utf8', 0, this.#length));
  }

  /** Where the object ends in the piece; null when it continues. Local variables keep the loop fast. */
  #endIn(piece: Buffer): number | null {
    let [depth, inString, escaped] = [this.#depth, this.#inString, this.#escaped];
    let end: number | null = null;
    for (let at = 0; at < piece.length && end === null; at++) {
      const byte = piece[at] as number;
      if (inString) {
        if (escaped) escaped = false;
        else if (byte === BACKSLASH) escaped = true;
        else if (byte === QUOTE) inString = false;
      } else if (byte === OPEN_BRACE || (byte === OPEN_BRACKET && depth > 0)) {
        depth += 1;
        if (depth > MAX_DEPTH) throw new SyntaxError('the body is nested too deeply');
      } else if (depth === 0 && byte > 0x20) {
        throw new SyntaxError('not a JSON object');
      } else if (byte === QUOTE) {
        inString = true;
      } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        depth -= 1;
        if (depth === 0) end = at + 1;
      } else if (byte === COMMA) {
        this.#values += 1;
        if (this.#values > this.limits.values) throw new SyntaxError('the body has too many values');
      }
    }
    this.#depth = depth;
    this.#inString = inString;
    this.#escaped = escaped;
    return end;
  }

  #keep(piece: Buffer): void {
    const length = this.#length + piece.length;
    if (length > this.limits.bytes) throw new SyntaxError('the body is too long');
    if (length > this.#body.length) {
      const larger = Buffer.allocUnsafe(Math.max(length, 2 * this.#length));
      this.#body.copy(larger, 0, 0, this.#length);
      this.#body = larger;
    }
    piece.copy(this.#body, this.#length);
    this.#length = length;
  }
}
