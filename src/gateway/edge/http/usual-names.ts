/** Those whose usual spelling is not a capital after each hyphen. */
const SPELLINGS = [
  ...[
    'A-IM',
    'ALPN',
    'Content-MD5',
    'DAV',
    'DNT',
    'DPR',
    'ECT',
    'ETag',
    'HTTP2-Settings',
    'IM',
    'MIME-Version',
    'NEL',
    'P3P',
  ],
  ...['RTT', 'SOAPAction', 'Sec-CH-UA', 'Sec-CH-UA-Arch', 'Sec-CH-UA-Bitness', 'Sec-CH-UA-Full-Version'],
  ...[
    'Sec-CH-UA-Full-Version-List',
    'Sec-CH-UA-Mobile',
    'Sec-CH-UA-Model',
    'Sec-CH-UA-Platform',
    'Sec-CH-UA-Platform-Version',
  ],
  ...['Sec-CH-UA-WoW64', 'Sec-GPC', 'Sec-WebSocket-Accept', 'Sec-WebSocket-Extensions', 'Sec-WebSocket-Key'],
  ...[
    'Sec-WebSocket-Protocol',
    'Sec-WebSocket-Version',
    'SourceMap',
    'TE',
    'WWW-Authenticate',
    'X-CSRF-Token',
    'X-DNS-Prefetch-Control',
  ],
  ...['X-HTTP-Method-Override', 'X-Request-ID', 'X-UA-Compatible', 'X-XSRF-TOKEN', 'X-XSS-Protection'],
];
/** More than all clients' usual ones. */
const MAX_NAMES = 1_000;
const MAX_LENGTH = 64;
const named = new Map(SPELLINGS.map((name) => [name.toLowerCase(), name]));

/**
 * A header's name as servers usually spell it, such as `Content-Length` and `ETag`: some on small devices know no other spelling,
 * and HTTP/2 has small letters only (RFC 9113, 8.2).
 *
 * @param lower the name in lower case
 */
export function usualName(lower: string): string {
  const known = named.get(lower);
  if (known !== undefined) return known;
  // Such names are nobody's usual ones.
  const name = lower.includes('_') ? lower : lower.replace(/(?:^|-)[a-z]/g, (start) => start.toUpperCase());
  if (named.size < MAX_NAMES && lower.length <= MAX_LENGTH) named.set(lower, name);
  return name;
}
