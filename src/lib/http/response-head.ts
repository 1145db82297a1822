import { cleanFields, isName, isPersistent, nameAt, trimSpace, valueAt } from './header-fields.ts';

/** Not an HTTP/1.1 message, or an ambiguous one. */
export class MalformedMessage extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'MalformedMessage';
  }
}

/** How the body of a response is delimited (RFC 9112, 6.3). */
type Framing = 'length' | 'chunked' | 'close';

export interface ResponseHead {
  /** 100 to 999: servers send statuses above 599, which are invalid (RFC 9110, 15), and other proxies pass them on. */
  readonly status: number;
  readonly reason: string;
  /** Flat name, value list: as received, except for what was repaired. */
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

/** With which a server that expects TLS answers plain text (RFC 8446, 5.1), and HTTP/2 begins (RFC 9113, 3.4). */
const TLS_ALERT = 0x15;
const HTTP2_SETTINGS = 0x04;
/** What a response can begin with; empty lines before it are ignored, as clients do. */
const STARTS = ['HTTP/', 'ICY '];
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5]\d\d)(?: ([\t\x20-\x7e\x80-\xff]*))?$/;
/**
 * The same with any white space between its parts (RFC 9112, 4), and of other versions, which all proxies read as 1.1. `ICY` is
 * what SHOUTcast servers say instead of HTTP/1.0.
 */
const LENIENT_STATUS_LINE = /^(?:HTTP\/(\d+(?:\.\d+)?)|ICY)[\t\v\f\r ]+([1-9]\d\d)(?!\S)[\t\v\f\r ]*(.*)$/i;
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const UNCLEAN = /[^\t\x20-\x7e\x80-\xff]/g;
const DIGITS = /^\d{1,15}$/;
const IDLE_SECONDS = /(?:^|[, \t])timeout=(\d{1,9})(?:[, \t]|$)/i;

/**
 * Reads a response's head. What a recipient may repair is repaired, because many devices send it and other proxies pass it on:
 * lines that end in LF, folded lines, white space around names, header lines that are none. Only clean lines are returned, and
 * what leaves for the client is made of them.
 *
 * @param text Latin-1, without the empty line that ends it
 * @throws {MalformedMessage} saying what is wrong with it
 */
export function parseResponseHead(text: string): ResponseHead {
  const lineEnd = text.indexOf('\r\n');
  const line = STATUS_LINE.exec(text.slice(0, lineEnd));
  const fields = line === null ? null : cleanFields(text, lineEnd + 2);
  if (line === null || fields === null) return repairedHead(text);
  return headOf(Number(line[2]), line[3] ?? '', line[1] === '0', fields);
}

function repairedHead(text: string): ResponseHead {
  const lines = text.replace(/^[\r\n]+/, '').split(/\r?\n/);
  const first = lines[0] ?? '';
  const line = LENIENT_STATUS_LINE.exec(first);
  if (line === null) throw new MalformedMessage(statusLineProblem(first));
  const [, version = '1.0', status, reason = ''] = line;
  return headOf(Number(status), cleaned(reason), Number(version) <= 1, repairedFields(lines.slice(1)));
}

function statusLineProblem(line: string): string {
  if (/^HTTP\/\d+(?:\.\d+)?[\t ]*$/i.test(line)) return 'its status line has no status';
  return 'its status line has no version or no status of three digits';
}

/** RFC 9112, 2.2 (lines before the first header), 5.1 (space before the colon), 5.2 (folded lines); RFC 9110, 5.5. */
function repairedFields(lines: readonly string[]): string[] {
  const fields: string[] = [];
  let last: string[] | undefined;
  for (const line of lines) {
    const isFolded = line.startsWith(' ') || line.startsWith('\t');
    const colon = line.indexOf(':');
    const name = isFolded || colon === -1 ? '' : trimSpace(line, 0, colon);
    if (isFolded) last?.push(cleaned(line));
    else if (NAME.test(name)) {
      if (last) fields.push(joined(last));
      fields.push(name);
      last = [cleaned(line.slice(colon + 1))];
    }
  }
  if (last) fields.push(joined(last));
  return fields;
}

/** The parts of a value that were on lines of their own. */
function joined(parts: readonly string[]): string {
  return parts.length === 1 ? (parts[0] ?? '') : parts.filter((part) => part !== '').join(' ');
}

/** A line break within a value could start a header of the upstream's clients' choice: it becomes a space, as do others. */
function cleaned(value: string): string {
  return trimSpace(value.replace(UNCLEAN, ' '));
}

function headOf(status: number, reason: string, isHttp10: boolean, fields: string[]): ResponseHead {
  let lengths: string | undefined;
  let encoding: string | undefined;
  let connection: string | undefined;
  let keepAlive: string | undefined;
  for (let at = 0; at < fields.length; at += 2) {
    const name = nameAt(fields, at);
    const value = valueAt(fields, at);
    if (isName(name, 'connection')) connection = connection === undefined ? value : `${connection}, ${value}`;
    else if (isName(name, 'keep-alive')) keepAlive = value;
    else if (isName(name, 'content-length')) lengths = lengths === undefined ? value : `${lengths},${value}`;
    else if (isName(name, 'transfer-encoding')) encoding = encoding === undefined ? value : `${encoding},${value}`;
  }
  const isChunked = encoding !== undefined && encodesInChunks(encoding);
  // The chunks count. What else such an upstream may mean is not found out on this connection (RFC 9112, 6.1 and 6.3).
  const isOdd = isChunked && (isHttp10 || lengths !== undefined || encoding?.includes(','));
  const length = isChunked || lengths === undefined || DIGITS.test(lengths) ? lengths : onlyLength(lengths);
  const isAmbiguous = lengths !== undefined && (isChunked || length !== lengths);
  const headers = isAmbiguous ? withLength(fields, isChunked ? undefined : length) : fields;
  const framing = isChunked ? 'chunked' : length !== undefined ? 'length' : 'close';
  const idle = keepAlive === undefined ? null : IDLE_SECONDS.exec(keepAlive);
  const reuse = { keepAlive: !isOdd && isPersistent(connection, isHttp10), keepAliveSeconds: idle && Number(idle[1]) };
  return { status, reason, headers, connection, framing, length: framing === 'length' ? Number(length) : 0, ...reuse };
}

/** Whether the body is in chunks and nothing else; `identity` means nothing, and some servers say `chunked` twice. */
function encodesInChunks(encoding: string): boolean {
  if (encoding.toLowerCase() === 'chunked') return true;
  const codings = encoding
    .toLowerCase()
    .split(',')
    .map((coding) => trimSpace(coding))
    .filter((coding) => coding !== '' && coding !== 'identity');
  const other = codings.find((coding) => coding !== 'chunked');
  if (other !== undefined) throw new MalformedMessage('its transfer-encoding is not supported: only chunked is');
  return codings.length > 0;
}

/** The length that is given several times (RFC 9110, 8.6). @throws {MalformedMessage} when they differ, or one is no length */
function onlyLength(list: string): string {
  const [first = '', ...others] = list.split(',').map((length) => trimSpace(length));
  if (!DIGITS.test(first)) throw new MalformedMessage('its content-length is not a number');
  if (others.some((length) => length !== first)) throw new MalformedMessage('it has two content-lengths that differ');
  return first;
}

/** The fields with this length instead of theirs; undefined: with none. */
function withLength(fields: readonly string[], length: string | undefined): string[] {
  const others = fields.filter((_, at) => !isName(nameAt(fields, at - (at % 2)), 'content-length'));
  return length === undefined ? others : [...others, 'Content-Length', length];
}

/**
 * Finds out early that what arrives is no response.
 *
 * @param text the beginning of a response
 * @returns what is wrong with it; null when it can become a head. A complete head is checked in full
 */
export function beginningProblem(text: string): string | null {
  const begun = text.replace(/^[\r\n]+/, '');
  const upper = begun.slice(0, 5).toUpperCase();
  if (STARTS.some((start) => start.startsWith(upper) || upper.startsWith(start))) return null;
  if (begun.startsWith('SSH-')) return 'it is SSH: use a tcp tunnel';
  const [type, version, , frame] = Buffer.from(begun, 'latin1');
  if (type === TLS_ALERT && version === 3) return 'it is TLS: forward to https://';
  if (type === 0 && frame === HTTP2_SETTINGS) return 'it is HTTP/2: set app_protocol to http2';
  return 'it has no status line: it is HTTP/0.9 or another protocol';
}
