import { trimSpace } from '../../../lib/http/header-fields.ts';
import { beginningProblem, MalformedMessage, parseResponseHead } from '../../../lib/http/response-head.ts';

/** A connection that is not what the inspector understands. Its bytes still pass, unseen. */
export class ParseFailure extends Error {}

/** A response for which a gateway of this project answers 502. */
export class InvalidResponse extends ParseFailure {
  /** @param problem what is wrong with it */
  constructor(problem: string) {
    super(`the upstream sent an invalid HTTP response: ${problem}`);
  }
}

export interface HeaderField {
  name: string;
  value: string;
}

export interface RequestLine {
  method: string;
  target: string;
  httpVersion: string;
}

export interface StatusLine {
  httpVersion: string;
  status: number;
  statusText: string;
}

/**
 * What follows a head: a body of so many bytes, chunks, everything until the connection ends, another head of the same
 * message (1xx), or another protocol.
 */
export type Following = number | 'chunks' | 'until-end' | 'head' | 'raw';

/** What of a head decides where its body ends. */
export interface HeadFacts {
  /** Null without Content-Length. */
  length: number | null;
  /** Transfer-Encoding in lower case; null without. */
  transferEncoding: string | null;
  /** Upgrade in lower case; null without. */
  upgrade: string | null;
}

// Both only test: the arrays of what groups match would be most of what the garbage collector sees of an inspection.
const REQUEST_LINE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64} [^ \r\n]+ HTTP\/1\.\d\r?(?:\n|$)/;
const STATUS_LINE = /^HTTP\/1\.\d [1-9]\d\d(?: [^\r\n]*)?\r?(?:\n|$)/;
const HTTP2_PREFACE = 'PRI * HTTP/2.0';
const LOWER_CASE = 0x20;
const CR = 0x0d;

/** @throws {ParseFailure} */
export function requestLineOf(head: string): RequestLine {
  if (!REQUEST_LINE.test(head)) {
    throw new ParseFailure(head.startsWith(HTTP2_PREFACE) ? 'HTTP/2 is not inspected' : 'not a request of HTTP/1.1');
  }
  const method = head.indexOf(' ');
  const target = head.indexOf(' ', method + 1);
  const version = target + ' HTTP/'.length;
  return {
    method: head.slice(0, method),
    target: head.slice(method + 1, target),
    httpVersion: head.slice(version, version + 3),
  };
}

interface ResponseFacts {
  line: StatusLine;
  facts: HeadFacts;
}

/**
 * Reads what responses usually have from their facts alone, and all others as a gateway of this project does.
 *
 * @throws {InvalidResponse} when such a gateway refuses it
 */
export function responseFactsOf(head: string): ResponseFacts {
  try {
    if (!STATUS_LINE.test(head)) return repairedFacts(head);
    const facts = headFacts(head);
    const { transferEncoding } = facts;
    return transferEncoding === null || transferEncoding === 'chunked'
      ? { line: statusLineOf(head), facts }
      : repairedFacts(head);
  } catch (error) {
    if (error instanceof InvalidResponse) throw error;
    return repairedFacts(head);
  }
}

function repairedFacts(head: string): ResponseFacts {
  try {
    const { status, reason, framing, length } = parseResponseHead(`${head}\r\n`);
    const httpVersion = /^HTTP\/(\d+(?:\.\d+)?)/i.exec(head)?.[1] ?? '1.0';
    const facts = {
      length: framing === 'length' ? length : null,
      transferEncoding: framing === 'chunked' ? 'chunked' : null,
      upgrade: fieldValue(headerFields(head), 'upgrade')?.toLowerCase() ?? null,
    };
    return { line: { httpVersion, status, statusText: reason }, facts };
  } catch (error) {
    throw error instanceof MalformedMessage ? new InvalidResponse(error.message) : error;
  }
}

/** What is wrong with what has arrived instead of a response; null: it may have become one. */
export function invalidBeginning(text: string): InvalidResponse | null {
  const problem = text === '' ? null : beginningProblem(text);
  return problem === null ? null : new InvalidResponse(problem);
}

/** @throws {InvalidResponse} for a switch of protocols that the request has not asked for */
export function checkSwitch(requestHead: string): void {
  if (headFacts(requestHead).upgrade === null) {
    throw new InvalidResponse('its status is 101, which the request has not asked for');
  }
}

/** @throws {InvalidResponse} */
export function statusLineOf(head: string): StatusLine {
  if (!STATUS_LINE.test(head)) return repairedFacts(head).line;
  const lineEnd = head.indexOf('\n');
  const end = lineEnd === -1 ? head.length : lineEnd;
  const statusText = head.slice('HTTP/1.1 200 '.length, head.charCodeAt(end - 1) === CR ? end - 1 : end);
  return { httpVersion: head.slice(5, 8), status: Number(head.slice(9, 12)), statusText };
}

/**
 * Reads the facts alone: this runs for every request, and everything else only for those that somebody looks at.
 *
 * @throws {ParseFailure} when the length is ambiguous
 */
export function headFacts(head: string): HeadFacts {
  const facts: HeadFacts = { length: null, transferEncoding: null, upgrade: null };
  let end = head.indexOf('\n');
  while (end !== -1) {
    const start = end + 1;
    end = head.indexOf('\n', start);
    if (mayBeFact(head, start)) takeFact(facts, head.slice(start, end === -1 ? head.length : end));
  }
  return facts;
}

/** Looks at two letters, which hardly any other common name has at these places. */
function mayBeFact(head: string, start: number): boolean {
  const letter = (at: number) => head.charCodeAt(start + at) | LOWER_CASE;
  switch (letter(0)) {
    case 0x63: // content-length
      return letter(8) === 0x6c;
    case 0x74: // transfer-encoding
      return letter(9) === 0x65;
    case 0x75: // upgrade
      return letter(6) === 0x65;
    default:
      return false;
  }
}

function takeFact(facts: HeadFacts, line: string): void {
  const colon = line.indexOf(':');
  const name = trimSpace(line, 0, colon).toLowerCase();
  const value = trimSpace(line, colon + 1, line.endsWith('\r') ? line.length - 1 : line.length);
  if (name === 'content-length') {
    const length = parseLength(value);
    if (facts.length !== null && facts.length !== length) throw new ParseFailure('several lengths of one body');
    facts.length = length;
  } else if (name === 'transfer-encoding') {
    const before = facts.transferEncoding;
    facts.transferEncoding = before === null ? value.toLowerCase() : `${before}, ${value.toLowerCase()}`;
  } else if (name === 'upgrade') {
    facts.upgrade = value.toLowerCase();
  }
}

function parseLength(value: string): number {
  if (/^\d{1,15}$/.test(value)) return Number(value);
  // Some senders merge repeated fields.
  const [length = '', ...others] = value.split(',').map((each) => trimSpace(each));
  if (!/^\d{1,15}$/.test(length) || others.some((other) => other !== length)) {
    throw new ParseFailure('invalid Content-Length');
  }
  return Number(length);
}

/** The fields of a head or of trailers, in order. What is no field is left out. */
export function headerFields(head: string, isTrailer = false): HeaderField[] {
  const fields: HeaderField[] = [];
  const lines = head.split(/\r?\n/);
  for (const line of isTrailer ? lines : lines.slice(1)) {
    const last = fields.at(-1);
    if (/^[ \t]/.test(line) && last) {
      last.value = `${last.value} ${trimSpace(line)}`;
      continue;
    }
    const colon = line.indexOf(':');
    if (colon > 0) fields.push({ name: trimSpace(line, 0, colon), value: utf8(trimSpace(line, colon + 1)) });
  }
  return fields;
}

/** The value of the first field with that name, in any case; null without. */
export function fieldValue(fields: readonly HeaderField[], name: string): string | null {
  return fields.find((field) => field.name.toLowerCase() === name)?.value ?? null;
}

/** Heads are kept one byte a character; what was sent as UTF-8 is shown as that. */
function utf8(value: string): string {
  if (!/[\x80-\xff]/.test(value)) return value;
  const text = Buffer.from(value, 'latin1').toString('utf8');
  return text.includes('\ufffd') ? value : text;
}

/**
 * What follows the head of a request.
 *
 * @throws {ParseFailure} when its end cannot be found
 */
export function afterRequestHead({ length, transferEncoding }: HeadFacts): Following {
  if (transferEncoding === null) return length ?? 0;
  if (isChunked(transferEncoding)) return 'chunks';
  throw new ParseFailure(`transfer encoding ${transferEncoding.slice(0, 40)}`);
}

/** What follows the head of a response; `raw` after an upgrade. */
export function afterResponseHead(method: string, status: number, { length, transferEncoding }: HeadFacts): Following {
  if (status === 101 || (method === 'CONNECT' && status >= 200 && status < 300)) return 'raw';
  if (status < 200) return 'head';
  if (method === 'HEAD' || status === 204 || status === 304) return 0;
  if (transferEncoding === null) return length ?? 'until-end';
  return isChunked(transferEncoding) ? 'chunks' : 'until-end';
}

function isChunked(transferEncoding: string): boolean {
  return /(?:^|,)[ \t]*chunked$/.test(transferEncoding);
}
