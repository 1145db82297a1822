import { ParseFailure } from './parse-failure.ts';

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

/** What of a head decides where its body ends. */
export interface HeadFacts {
  /** Null without Content-Length. */
  length: number | null;
  /** Transfer-Encoding in lower case; null without. */
  transferEncoding: string | null;
  /** Upgrade in lower case; null without. */
  upgrade: string | null;
}

const REQUEST_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) ([^ \r\n]+) HTTP\/(\d\.\d)\r?$/;
const STATUS_LINE = /^HTTP\/(\d\.\d) (\d{3})(?: ([^\r\n]*))?\r?$/;
const HTTP2_PREFACE = 'PRI * HTTP/2.0';
/** A place in content-length, transfer-encoding and upgrade where no other common name with that first letter has the same. */
const TELLING = new Map(
  [
    { name: 'content-length', at: 8 },
    { name: 'transfer-encoding', at: 9 },
    { name: 'upgrade', at: 6 },
  ].map(({ name, at }) => [name.charCodeAt(0), { at, letter: name.charCodeAt(at) }]),
);
const LOWER_CASE = 0x20;

/** @throws {ParseFailure} */
export function requestLineOf(head: string): RequestLine {
  const line = firstLine(head);
  const [, method, target, httpVersion] = REQUEST_LINE.exec(line) ?? [];
  if (method !== undefined && target !== undefined && httpVersion?.startsWith('1.')) {
    return { method, target, httpVersion };
  }
  throw new ParseFailure(line.startsWith(HTTP2_PREFACE) ? 'HTTP/2 is not inspected' : 'not a request of HTTP/1.1');
}

/** @throws {ParseFailure} */
export function statusLineOf(head: string): StatusLine {
  const [, httpVersion, status, statusText = ''] = STATUS_LINE.exec(firstLine(head)) ?? [];
  if (httpVersion === undefined || !httpVersion.startsWith('1.')) throw new ParseFailure('not a response of HTTP/1.1');
  return { httpVersion, status: Number(status), statusText };
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
    const telling = TELLING.get(head.charCodeAt(start) | LOWER_CASE);
    if (telling === undefined || (head.charCodeAt(start + telling.at) | LOWER_CASE) !== telling.letter) continue;
    takeFact(facts, head.slice(start, end === -1 ? head.length : end));
  }
  return facts;
}

function takeFact(facts: HeadFacts, line: string): void {
  const colon = line.indexOf(':');
  const name = line.slice(0, colon).trim().toLowerCase();
  const value = line.slice(colon + 1).trim();
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
  const [length = '', ...others] = value.split(',').map((each) => each.trim());
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
      last.value = `${last.value} ${line.trim()}`;
      continue;
    }
    const colon = line.indexOf(':');
    if (colon > 0) fields.push({ name: line.slice(0, colon).trim(), value: utf8(line.slice(colon + 1).trim()) });
  }
  return fields;
}

/** The value of the first field with that name, in any case; null without. */
export function headerValue(fields: readonly HeaderField[], name: string): string | null {
  return fields.find((field) => field.name.toLowerCase() === name)?.value ?? null;
}

/** Heads are kept one byte a character; what was sent as UTF-8 is shown as that. */
function utf8(value: string): string {
  if (!/[\x80-\xff]/.test(value)) return value;
  const text = Buffer.from(value, 'latin1').toString('utf8');
  return text.includes('\ufffd') ? value : text;
}

function firstLine(head: string): string {
  const end = head.indexOf('\n');
  return end === -1 ? head : head.slice(0, end);
}
