import { isName, isPersistent, MalformedMessage, parseFields } from './header-fields.ts';

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

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: ([\t\x20-\x7e\x80-\xff]*))?$/;
const STATUS_START = 'HTTP/1.';
/** Text without control characters, CR and LF other than as a pair among them: lone ones are how messages are split. */
const CLEAN = /^[\t\x20-\x7e\x80-\xff]*(?:\r\n[\t\x20-\x7e\x80-\xff]*)*$/;
const DIGITS = /^\d{1,15}$/;
const IDLE_SECONDS = /(?:^|[,\s])timeout=(\d{1,9})(?:[,\s]|$)/i;

/**
 * Reads a complete head.
 *
 * @param text Latin-1, every line with its CR LF, without the empty line that ends it
 * @throws {MalformedMessage}
 */
export function parseResponseHead(text: string): ResponseHead {
  const lineEnd = text.indexOf('\r\n');
  const line = STATUS_LINE.exec(text.slice(0, lineEnd));
  if (line === null) throw new MalformedMessage('no status line');
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
        if (isName(name, 'connection')) connection = connection === undefined ? value : `${connection}, ${value}`;
        else if (isName(name, 'keep-alive')) keepAlive = value;
        break;
      case 14:
        if (!isName(name, 'content-length')) break;
        if (length !== undefined || !DIGITS.test(value)) throw new MalformedMessage('no single valid content-length');
        length = value;
        break;
      case 17:
        if (!isName(name, 'transfer-encoding')) break;
        if (encoding !== undefined || old) throw new MalformedMessage('an unexpected transfer-encoding');
        encoding = value;
        break;
    }
  }
  if (encoding !== undefined && encoding.toLowerCase() !== 'chunked') {
    throw new MalformedMessage('a transfer-encoding other than chunked');
  }
  if (encoding !== undefined && length !== undefined) throw new MalformedMessage('both length and transfer-encoding');
  const idle = keepAlive === undefined ? null : IDLE_SECONDS.exec(keepAlive);
  return {
    status,
    reason,
    headers,
    framing: encoding !== undefined ? 'chunked' : length !== undefined ? 'length' : 'close',
    length: length === undefined ? 0 : Number(length),
    keepAlive: isPersistent(connection, old),
    keepAliveSeconds: idle === null ? null : Number(idle[1]),
    connection,
  };
}
