import { isName, isPersistent, MalformedMessage, parseFields } from './header-fields.ts';

/** How the body of a response is delimited (RFC 9112, 6.3). */
export type Framing = 'length' | 'chunked' | 'close';

/** The status line and headers of a response, and what follows from them. */
export interface ResponseHead {
  readonly status: number;
  readonly reason: string;
  /** Flat name, value list as received. */
  readonly headers: string[];
  readonly framing: Framing;
  /** Bytes of the body when the framing is `length`. */
  readonly length: number;
  /** Whether the upstream accepts another request on the connection. */
  readonly keepAlive: boolean;
  /** Seconds that the upstream keeps an idle connection open; null when unknown. */
  readonly keepAliveSeconds: number | null;
  /** Value of the Connection header, joined when it is repeated. */
  readonly connection: string | undefined;
}

/** Other statuses than 1xx to 5xx are invalid (RFC 9110, 15), and Node cannot send them with HTTP/2. */
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5]\d\d)(?: ([\t\x20-\x7e\x80-\xff]*))?$/;
const STATUS_START = 'HTTP/1.';
/** Text without control characters. CR and LF are valid as a pair only: lone ones enable response splitting. */
const CLEAN = /^[\t\x20-\x7e\x80-\xff]*(?:\r\n[\t\x20-\x7e\x80-\xff]*)*$/;
const DIGITS = /^\d{1,15}$/;
const IDLE_SECONDS = /(?:^|[, \t])timeout=(\d{1,9})(?:[, \t]|$)/i;

/**
 * Parses a complete head.
 *
 * @param text Latin-1, every line with its CR LF, without the empty line that ends it
 * @throws {MalformedMessage}
 */
export function parseResponseHead(text: string): ResponseHead {
  const lineEnd = text.indexOf('\r\n');
  const line = STATUS_LINE.exec(text.slice(0, lineEnd));
  if (line === null) throw new MalformedMessage('invalid status line');
  return headOf(Number(line[2]), line[3] ?? '', line[1] === '0', parseFields(text, lineEnd + 2));
}

/**
 * Whether the beginning of a head cannot become a valid one. Finds most faults early; a complete head is checked in full.
 */
export function cannotBecomeHead(text: string): boolean {
  if (!(text.startsWith(STATUS_START) || STATUS_START.startsWith(text))) return true;
  // The LF after a final CR may still arrive.
  return !CLEAN.test(text.endsWith('\r') ? text.slice(0, -1) : text);
}

function headOf(status: number, reason: string, isHttp10: boolean, headers: string[]): ResponseHead {
  let length: string | undefined;
  let encoding: string | undefined;
  let connection: string | undefined;
  let keepAlive: string | undefined;
  for (let at = 0; at < headers.length; at += 2) {
    const name = headers[at] as string;
    const value = headers[at + 1] as string;
    // Comparing lengths first avoids a lower-case copy of most names.
    switch (name.length) {
      case 10:
        if (isName(name, 'connection')) connection = connection === undefined ? value : `${connection}, ${value}`;
        else if (isName(name, 'keep-alive')) keepAlive = value;
        break;
      case 14:
        if (!isName(name, 'content-length')) break;
        if (length !== undefined || !DIGITS.test(value)) throw new MalformedMessage('invalid content-length');
        length = value;
        break;
      case 17:
        if (!isName(name, 'transfer-encoding')) break;
        if (encoding !== undefined || isHttp10)
          throw new MalformedMessage('repeated transfer-encoding, or one in HTTP/1.0');
        encoding = value;
        break;
    }
  }
  if (encoding !== undefined && encoding.toLowerCase() !== 'chunked') {
    throw new MalformedMessage('unsupported transfer-encoding');
  }
  if (encoding !== undefined && length !== undefined)
    throw new MalformedMessage('both content-length and transfer-encoding');
  const idle = keepAlive === undefined ? null : IDLE_SECONDS.exec(keepAlive);
  return {
    status,
    reason,
    headers,
    framing: encoding !== undefined ? 'chunked' : length !== undefined ? 'length' : 'close',
    length: length === undefined ? 0 : Number(length),
    keepAlive: isPersistent(connection, isHttp10),
    keepAliveSeconds: idle === null ? null : Number(idle[1]),
    connection,
  };
}
