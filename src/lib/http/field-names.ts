/** Headers that frame the message or control the connection (RFC 9110, section 7.6.1): they do not belong to the request. */
export const CONNECTION_HEADERS: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'expect',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/**
 * A header's name as CGI, WSGI and similar interfaces read it: to them, `x_user` and `x-user` are one header.
 *
 * @param name lower case
 */
export function hyphenated(name: string): string {
  return name.includes('_') ? name.replaceAll('_', '-') : name;
}
