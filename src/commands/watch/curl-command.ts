import type { RequestDetail } from '../../agent/api/inspection/inspection-reports.ts';
import { printable } from '../../lib/terminal-text.ts';

/** Set by curl, the connection or the gateway. */
const LEFT_OUT =
  /^(?:host|content-length|connection|keep-alive|transfer-encoding|te|expect|upgrade|accept-encoding|x-forwarded-.*|forwarded|via)$/i;

/**
 * The curl command that sends a captured request to the tunnel again, without a body that was not captured whole.
 *
 * @param url the tunnel's public URL
 */
export function curlCommand({ method, path, request }: RequestDetail, url: string): string {
  const { headers } = request;
  const body = request.body?.truncated ? null : request.body;
  // What could not be decoded is sent as it was captured.
  const isEncoded = body !== null && body.error !== null;
  const sent = headers.filter(({ name }) => !LEFT_OUT.test(name) && (isEncoded || !/^content-encoding$/i.test(name)));
  const acceptsCompressed = headers.some(({ name }) => /^accept-encoding$/i.test(name));
  const binary = body !== null && body.text === null;
  const words = [
    ...(binary ? [`printf %s ${quoted(body.base64 ?? '')} | base64 -d |`] : []),
    'curl',
    // Otherwise curl would expand them.
    ...(/[[\]{}]/.test(path) ? ['-g'] : []),
    ...methodOption(method, body !== null),
    quoted(new URL(url).origin + path),
    ...sent.map(({ name, value }) => `-H ${quoted(value === '' ? `${name};` : `${name}: ${value}`)}`),
    ...(acceptsCompressed ? ['--compressed'] : []),
    ...(binary ? ['--data-binary @-'] : body === null ? [] : [`--data-raw ${quoted(body.text ?? '')}`]),
  ];
  return words.join(' ');
}

function methodOption(method: string, hasBody: boolean): string[] {
  if (method === 'HEAD') return ['-I'];
  return method === (hasBody ? 'POST' : 'GET') ? [] : [`-X ${quoted(method)}`];
}

/** One word of a shell (bash, zsh, ksh), without a character that a terminal would carry out. */
function quoted(text: string): string {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (printable(text) === text) return `'${text.replaceAll("'", "'\\''")}'`;
  const characters = [...text].map((each) => {
    if (each === "'" || each === '\\') return `\\${each}`;
    return printable(each) === each ? each : [...Buffer.from(each)].map(octal).join('');
  });
  return `$'${characters.join('')}'`;
}

/** Three digits, so that it does not take those that follow as its own. */
const octal = (byte: number): string => `\\${byte.toString(8).padStart(3, '0')}`;
