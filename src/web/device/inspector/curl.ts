import type { BodyReport, RequestDetail } from '../../../agent/api/inspection/inspection-reports.ts';

/** Headers that curl sets by itself, or that belong to one connection. */
const OMITTED = new Set(['host', 'connection', 'content-length', 'transfer-encoding', 'accept-encoding']);
/** What a shell or a terminal could take for something else. */
const CONTROL = /[^\P{Cc}\t\n]/u;

/**
 * The request as a command for a shell.
 *
 * @param url of the tunnel
 */
export function toCurl({ method, path, request }: RequestDetail, url: string): string {
  const { headers, body } = request;
  const data = body === null || body.truncated ? null : dataOf(body);
  const isDefault = method === (data === null ? 'GET' : 'POST');
  const compressed = headers.some(({ name }) => name.toLowerCase() === 'accept-encoding');
  // What could not be decoded is sent as it was captured.
  const isEncoded = data !== null && body?.error != null;
  const isSent = (name: string) => !OMITTED.has(name) && (isEncoded || name !== 'content-encoding');
  const sent = headers.filter(({ name }) => isSent(name.toLowerCase()) && !name.startsWith(':'));
  const parts = [
    `curl --globoff --path-as-is ${quote(new URL(url).origin + path)}`,
    ...(method === 'HEAD' ? ['--head'] : isDefault ? [] : [`--request ${quote(method)}`]),
    // curl omits a header with an empty value unless it ends in a semicolon.
    ...sent.map(({ name, value }) => `--header ${quote(value === '' ? `${name};` : `${name}: ${value}`)}`),
    ...(compressed ? ['--compressed'] : []),
    ...(data ? [data.option] : []),
  ];
  return (data?.before ?? '') + parts.join(' \\\n  ');
}

function dataOf({ text, base64 }: BodyReport): { before: string; option: string } {
  if (text !== null && !CONTROL.test(text)) return { before: '', option: `--data-raw ${quote(text)}` };
  const encoded = base64 ?? toBase64(text ?? '');
  return { before: `printf %s ${quote(encoded)} | base64 -d | `, option: '--data-binary @-' };
}

function toBase64(text: string): string {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(''));
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
