/**
 * Where the first request in a text ends for a reader that validates nothing.
 *
 * @returns -1 when it does not end yet
 */
export function endOfRequest(text: string): number {
  const body = text.indexOf('\r\n\r\n') + 4;
  if (body === 3) return -1;
  const head = text.slice(0, body);
  if (/^transfer-encoding: *chunked/im.test(head)) return endOfChunks(text, body);
  const end = body + Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
  return text.length < end ? -1 : end;
}

function endOfChunks(text: string, from: number): number {
  for (let at = from; ; ) {
    const line = text.indexOf('\r\n', at);
    const size = Number.parseInt(text.slice(at, line), 16);
    if (line === -1 || Number.isNaN(size)) return -1;
    if (size === 0) return text.indexOf('\r\n\r\n', line) === -1 ? -1 : text.indexOf('\r\n\r\n', line) + 4;
    at = line + 2 + size + 2;
  }
}
