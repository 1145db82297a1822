import { printable, printableLines } from '../../../lib/terminal-text.ts';
import type { BodyReport, RequestDetail } from './inspection-reports.ts';

/** Set by curl, the connection or the gateway; those of HTTP/2 that begin with a colon. */
const LEFT_OUT =
  /^(?::.*|host|content-length|connection|keep-alive|transfer-encoding|te|expect|upgrade|accept-encoding|x-forwarded-.*|forwarded|via)$/i;

/**
 * The curl command that sends a captured request to the tunnel again, without a body that was not captured whole, or that of
 * a HEAD request, which curl refuses. For the terminal and for the page.
 *
 * @param ca file with the CA of an embedded gateway; null: the gateway is elsewhere
 */
export function curlCommand({ method, path, request }: RequestDetail, url: string, ca: string | null = null): string {
  const { headers } = request;
  const body = request.body?.truncated || method === 'HEAD' ? null : request.body;
  // What could not be decoded is sent as it was captured.
  const isEncoded = body !== null && body.error !== null;
  const sent = headers.filter(({ name }) => !LEFT_OUT.test(name) && (isEncoded || !/^content-encoding$/i.test(name)));
  const acceptsCompressed = headers.some(({ name }) => /^accept-encoding$/i.test(name));
  const data = body === null ? null : dataOf(body);
  const words = [
    ...(data?.before ?? []),
    'curl',
    ...(ca === null ? [] : [`--cacert ${quoted(ca)}`]),
    // Otherwise curl would expand them.
    ...(/[[\]{}]/.test(path) ? ['-g'] : []),
    ...(/\/\./.test(path) ? ['--path-as-is'] : []),
    ...methodOption(method, body !== null),
    quoted(new URL(url).origin + path),
    // curl omits a header with an empty value unless it ends in a semicolon.
    ...sent.map(({ name, value }) => `-H ${quoted(value === '' ? `${name};` : `${name}: ${value}`)}`),
    // Otherwise curl would call the body a form.
    ...(data && !headers.some(({ name }) => /^content-type$/i.test(name)) ? ['-H Content-Type:'] : []),
    ...(acceptsCompressed ? ['--compressed'] : []),
    ...(data ? [data.option] : []),
  ];
  return words.join(' ');
}

function methodOption(method: string, hasBody: boolean): string[] {
  if (method === 'HEAD') return ['-I'];
  return method === (hasBody ? 'POST' : 'GET') ? [] : [`-X ${quoted(method)}`];
}

/** Binary bodies, and text that a terminal would carry out, go through base64: arguments hold no NUL. */
function dataOf({ text, base64 }: BodyReport): { before: string[]; option: string } {
  if (text !== null && printableLines(text) === text) return { before: [], option: `--data-raw ${quoted(text)}` };
  const encoded = base64 ?? toBase64(text ?? '');
  return { before: [`printf %s ${quoted(encoded)} | base64 -d |`], option: '--data-binary @-' };
}

function toBase64(text: string): string {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(''));
}

/** One word of a shell, without a character that a terminal would carry out; with such characters, of bash, zsh or ksh. */
function quoted(text: string): string {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (printableLines(text) === text) return `'${text.replaceAll("'", "'\\''")}'`;
  const characters = [...text].map((each) => {
    if (each === "'" || each === '\\') return `\\${each}`;
    return printable(each) === each ? each : Array.from(new TextEncoder().encode(each), octal).join('');
  });
  return `$'${characters.join('')}'`;
}

/** Three digits, so that it does not take those that follow as its own. */
const octal = (byte: number): string => `\\${byte.toString(8).padStart(3, '0')}`;
