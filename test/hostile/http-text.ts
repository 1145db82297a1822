import fc from 'fast-check';

/** A request in wire format, and its parts. */
export interface RequestText {
  method: string;
  path: string;
  host: string;
  headers: string[];
  text: string;
}

/** Printed instead of the value when a property fails, so that it can be repeated by hand. */
const SHOWN = 1_500;
const shown = (text: string) => JSON.stringify(text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text);

export interface Vocabulary {
  methods: string[];
  /** Segments of paths. */
  segments: string[];
  hosts: string[];
  headers: string[];
  bodies: fc.Arbitrary<string>;
}

/** Strings that have confused parsers of paths and names. */
const TRICKS = [
  ...[
    '/',
    '//',
    '..',
    '.',
    '%2e%2e',
    '%2f',
    '%5c',
    '\\',
    '%00',
    '%',
    '%zz',
    '%c0%ae',
    '%ff',
    ';',
    ';x=y',
    '?',
    '#',
    '@',
  ],
  ...[
    '__proto__',
    'constructor',
    '*',
    ':',
    ' ',
    '\t',
    '%0d%0a',
    'é',
    '%E2%80%AE',
    'http://evil.example',
    'a'.repeat(300),
  ],
];

/**
 * Requests that are almost right: methods, paths, hosts and headers out of what the server knows, mixed with what it
 * should not.
 */
export function requestText({ methods, segments, hosts, headers, bodies }: Vocabulary): fc.Arbitrary<RequestText> {
  const piece = fc.constantFrom(...segments, ...segments, ...TRICKS);
  const path = fc.oneof(
    fc.constantFrom(...segments).map((segment) => `/${segment}`),
    fc.array(piece, { maxLength: 5 }).map((pieces) => `/${pieces.join('/')}`),
    fc.array(piece, { maxLength: 5 }).map((pieces) => pieces.join('')),
  );
  const framing = fc.constantFrom<(body: string) => string>(
    (body) => `Content-Length: ${Buffer.byteLength(body)}`,
    (body) => `Content-Length: ${Buffer.byteLength(body)}`,
    () => 'Transfer-Encoding: chunked',
    (body) => `Content-Length: ${Buffer.byteLength(body) + 7}`,
    () => 'Content-Length: 0',
    () => 'Content-Length: -1',
    () => 'X-No: body',
  );
  return fc
    .record({
      method: fc.constantFrom(...methods),
      path,
      host: fc.constantFrom(...hosts),
      headers: fc.array(fc.constantFrom(...headers), { maxLength: 4 }),
      framing,
      body: fc.oneof(fc.constant(''), bodies),
    })
    .map(({ framing: lengthOf, body, ...asked }) => {
      const lines = [`${asked.method} ${asked.path} HTTP/1.1`, `Host: ${asked.host}`, ...asked.headers, lengthOf(body)];
      const head = `${lines.join('\r\n')}\r\nConnection: close\r\n\r\n`;
      const text = head + body;
      return { ...asked, text, [fc.toStringMethod]: () => shown(text) };
    });
}

/** Texts with some characters replaced, removed or doubled. */
export function damaged(texts: fc.Arbitrary<{ text: string }>): fc.Arbitrary<{ text: string }> {
  const damage = fc.record({
    at: fc.nat(4_000),
    length: fc.nat(8),
    instead: fc.oneof(
      fc.string({ unit: 'binary', maxLength: 4 }),
      fc.constantFrom('', '\r', '\n', '\0', '\r\n\r\n', ' ', ':'),
    ),
  });
  return fc.tuple(texts, fc.array(damage, { minLength: 1, maxLength: 4 })).map(([{ text: whole }, damages]) => {
    const text = damages.reduce((rest, { at, length, instead }) => {
      const from = at % (rest.length + 1);
      return rest.slice(0, from) + instead + rest.slice(from + length);
    }, whole);
    return { text, [fc.toStringMethod]: () => shown(text) };
  });
}

/** Random bytes. */
export const noise: fc.Arbitrary<{ text: string }> = fc
  .uint8Array({ maxLength: 400 })
  .map((bytes) => ({ text: Buffer.from(bytes).toString('latin1') }));
