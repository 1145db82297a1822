/** The upstream sent what is no HTTP/1.1 response, or one that two readers could understand differently. */
export class InvalidResponse extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'InvalidResponse';
  }
}

/** How the body of a response is delimited (RFC 9112, 6.3). */
export type Framing = 'length' | 'chunked' | 'close';

/** The status line and headers of a response, and what they say about the message and the connection. */
export interface ResponseHead {
  readonly status: number;
  readonly reason: string;
  /** Flat name, value list as received. */
  readonly headers: string[];
  readonly framing: Framing;
  /** Bytes of the body when the framing is `length`. */
  readonly length: number;
  /** Whether the upstream will take another request on the connection. */
  readonly keepAlive: boolean;
  /** Seconds that the upstream says it keeps an idle connection; null when it says nothing. */
  readonly keepAliveSeconds: number | null;
  /** Value of the Connection header, joined when it occurs more than once. */
  readonly connection: string | undefined;
}

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: (.*))?$/;
const STATUS_START = 'HTTP/1.';
/** Text without control characters, CR and LF other than as a pair among them: lone ones are how responses are split. */
const CLEAN = /^[\t\x20-\x7e\x80-\xff]*(?:\r\n[\t\x20-\x7e\x80-\xff]*)*$/;
const DIGITS = /^\d{1,15}$/;
const CLOSE = /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i;
const KEEP_ALIVE = /(?:^|,)[ \t]*keep-alive[ \t]*(?:,|$)/i;
const IDLE_SECONDS = /(?:^|[,\s])timeout=(\d{1,9})(?:[,\s]|$)/i;

/** Which characters a header's name may have (RFC 9110, 5.6.2). */
const NAME_CHARACTER = new Uint8Array(256);
for (const character of "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
  NAME_CHARACTER[character.charCodeAt(0)] = 1;
}

/**
 * Reads a complete head.
 *
 * @param text Latin-1, every line with its CR LF, without the empty line that ends it
 * @throws {InvalidResponse}
 */
export function parseResponseHead(text: string): ResponseHead {
  if (!CLEAN.test(text)) throw new InvalidResponse('a control character in the head');
  const lineEnd = text.indexOf('\r\n');
  const line = STATUS_LINE.exec(text.slice(0, lineEnd));
  if (line === null) throw new InvalidResponse('no status line');
  return headOf(Number(line[2]), line[3] ?? '', line[1] === '0', parseFields(text, lineEnd + 2));
}

/**
 * Whether the beginning of a head, as much as there is of it, cannot become a valid one.
 * It need not find everything: a complete head is looked at in full.
 */
export function cannotBecomeHead(text: string): boolean {
  if (!(text.startsWith(STATUS_START) || STATUS_START.startsWith(text))) return true;
  // A CR at the very end may still get its LF.
  return !CLEAN.test(text.endsWith('\r') ? text.slice(0, -1) : text);
}

/**
 * Reads header lines.
 *
 * @param text lines with their CR LF, known to hold no other control characters
 * @param at where the first one begins
 * @returns a flat name, value list
 * @throws {InvalidResponse}
 */
export function parseFields(text: string, at: number): string[] {
  const fields: string[] = [];
  for (let start = at; start < text.length; ) {
    const end = text.indexOf('\r\n', start);
    const colon = text.indexOf(':', start);
    if (colon <= start || colon > end) throw new InvalidResponse('a header line without a name');
    for (let i = start; i < colon; i++) {
      // A line that begins with white space, once a continuation, is refused here as well (RFC 9112, 5.2).
      if (NAME_CHARACTER[text.charCodeAt(i)] !== 1) throw new InvalidResponse('a malformed header name');
    }
    fields.push(text.slice(start, colon), valueBetween(text, colon + 1, end));
    start = end + 2;
  }
  return fields;
}

/** @throws {InvalidResponse} for trailers that hold control characters or are no header lines */
export function parseTrailers(text: string): string[] {
  if (!CLEAN.test(text)) throw new InvalidResponse('a control character in the trailers');
  return parseFields(text, 0);
}

/** Without white space around it. */
function valueBetween(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isBlank(text.charCodeAt(start))) start++;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

const isBlank = (code: number): boolean => code === 0x20 || code === 0x09;

function headOf(status: number, reason: string, old: boolean, headers: string[]): ResponseHead {
  let length: string | undefined;
  let encoding: string | undefined;
  let connection: string | undefined;
  let keepAlive: string | undefined;
  for (let at = 0; at < headers.length; at += 2) {
    const name = headers[at] as string;
    const value = headers[at + 1] as string;
    // The length tells most headers apart without a copy in lower case.
    switch (name.length) {
      case 10:
        if (is(name, 'connection')) connection = connection === undefined ? value : `${connection}, ${value}`;
        else if (is(name, 'keep-alive')) keepAlive = value;
        break;
      case 14:
        if (!is(name, 'content-length')) break;
        if (length !== undefined || !DIGITS.test(value)) throw new InvalidResponse('no single valid content-length');
        length = value;
        break;
      case 17:
        if (!is(name, 'transfer-encoding')) break;
        if (encoding !== undefined || old) throw new InvalidResponse('an unexpected transfer-encoding');
        encoding = value;
        break;
    }
  }
  if (encoding !== undefined && encoding.toLowerCase() !== 'chunked') {
    throw new InvalidResponse('a transfer-encoding other than chunked');
  }
  if (encoding !== undefined && length !== undefined) throw new InvalidResponse('both length and transfer-encoding');
  const idle = keepAlive === undefined ? null : IDLE_SECONDS.exec(keepAlive);
  return {
    status,
    reason,
    headers,
    framing: encoding !== undefined ? 'chunked' : length !== undefined ? 'length' : 'close',
    length: length === undefined ? 0 : Number(length),
    keepAlive: connection === undefined ? !old : !CLOSE.test(connection) && (!old || KEEP_ALIVE.test(connection)),
    keepAliveSeconds: idle === null ? null : Number(idle[1]),
    connection,
  };
}

function is(name: string, lower: string): boolean {
  return name === lower || name.toLowerCase() === lower;
}
