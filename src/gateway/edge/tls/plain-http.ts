const REQUEST_LINE = /^[A-Z]{3,10} \S+ HTTP\/1\.[01]\r\n/;
const HOST = /\r\nHost:[ \t]*([a-z0-9.-]{1,253}(?::\d{1,5})?)[ \t]*\r\n/i;

/**
 * What a client reads that speaks HTTP without TLS to the port for TLS, such as a browser with `http://` in its address.
 *
 * @param begin what it has sent so far
 * @returns null when that is no HTTP request
 */
export function answerToPlainHttp(begin: Buffer | null): string | null {
  const request = begin?.toString('latin1', 0, 8192) ?? '';
  if (!REQUEST_LINE.test(request)) return null;
  // Only what a host name can be made of gets into the page.
  const host = HOST.exec(request)?.[1];
  const url = host === undefined ? null : `https://${host}/`;
  const instead = url === null ? 'a URL that starts with https://' : `<a href="${url}">${url}</a>`;
  const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>This port needs HTTPS</title>
<h1>This port needs HTTPS</h1>
<p>The request came without TLS (http://). Open ${instead} instead.</p>
</html>
`;
  const head = [
    'HTTP/1.1 400 Bad Request',
    'Content-Type: text/html; charset=utf-8',
    `Content-Length: ${Buffer.byteLength(page)}`,
    "Content-Security-Policy: default-src 'none'",
    'Cache-Control: no-store',
    'Connection: close',
  ];
  return `${head.join('\r\n')}\r\n\r\n${request.startsWith('HEAD ') ? '' : page}`;
}
