import type { ReportedRule } from '../../../agent-protocol/request-report.ts';
import { printable, printableLines } from '../../../lib/terminal-text.ts';
import type { BodyReport, RequestDetail } from './inspection-reports.ts';

// How captured requests are chosen and shown: on the page and by `device-agent watch`.

/** Which requests to show; what is omitted does not matter. */
export interface ExchangeFilter {
  method?: string | undefined;
  /** Contained in path and query, as sent or as {@link readablePath} shows them, in any case. */
  path?: string | undefined;
  /** `404`, `5xx`, or `none` without a response. */
  status?: string | undefined;
  min_duration_ms?: number | undefined;
}

export interface Filtered {
  method: string;
  path: string;
  status: number | null;
  durationMs: number;
}

/** What {@link ExchangeFilter.status} may be. */
export const STATUS_FILTER = /^(?:[1-5](?:xx|\d\d)|none)$/i;

export function matcherOf({ method, path, status, min_duration_ms = 0 }: ExchangeFilter): (each: Filtered) => boolean {
  const part = path?.toLowerCase();
  const wantedMethod = method?.toUpperCase();
  const digits = status?.toLowerCase().replace(/x+$/, '');
  return (each) => {
    if (wantedMethod !== undefined && each.method.toUpperCase() !== wantedMethod) return false;
    if (part !== undefined && !contains(each.path, part) && !contains(readablePath(each.path), part)) return false;
    if (digits === 'none' ? each.status !== null : digits !== undefined && !String(each.status).startsWith(digits)) {
      return false;
    }
    return each.durationMs >= min_duration_ms;
  };
}

const contains = (text: string, part: string): boolean => text.toLowerCase().includes(part);

/** What would not show what was sent: controls, invisible characters, and separators other than a space. */
const UNREADABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;

/** A path with its percent-encoded letters shown, except where that would change how the path is read. */
export function readablePath(path: string): string {
  return path.replace(/(?:%(?!25)[0-9a-f]{2})+/gi, (encoded) => {
    try {
      const text = decodeURI(encoded);
      return UNREADABLE.test(text) ? encoded : text;
    } catch {
      return encoded;
    }
  });
}

/** `rule 2 of on_http_request`, with the name that its author gave it. Rules of an endpoint's options have a place of their own. */
export function ruleTitle({ phase, place, name }: ReportedRule): string {
  const [, list = phase, at] = /^(\w+)\[(\d+)\]$/.exec(place) ?? [];
  const title = at === undefined ? place : `rule ${Number(at) + 1} of ${list}`;
  return name === null ? title : `${title}, ${name}`;
}

export function outcomeText({ outcome }: ReportedRule): string | null {
  switch (outcome.kind) {
    case 'continue':
      return null;
    case 'answer':
      return `answered ${outcome.status}`;
    case 'error':
      return `answered ${outcome.status}, ${outcome.code}`;
    case 'close':
      return 'closed the connection';
    case 'forward':
      return `forwarded to ${outcome.url}`;
  }
}

/** What the gateway's error pages mean, by status and code: codes stand for several failures. */
const MEANINGS: Readonly<Record<string, string>> = {
  '502 ERR_NGROK_3004': 'the upstream sent an invalid HTTP response',
  '502 ERR_NGROK_3007': 'the connection to the upstream was lost before it answered',
  '502 ERR_NGROK_8012': 'the upstream is unreachable',
  '503 ERR_NGROK_3007': 'the agent has reached its connection limit',
  '504 ERR_NGROK_3005': 'the upstream did not answer in time',
};

/** Whose response the client got and why, in one line; null when it is the upstream's, or not known. */
export function verdictText({ answered_by, gateway }: RequestDetail): string | null {
  if (gateway === null || answered_by === null || answered_by === 'upstream') return null;
  const rule = gateway.rules.findLast(({ outcome }) => outcome.kind !== 'continue');
  const { status, error_code } = gateway;
  const code = error_code === null ? '' : `, ${error_code}`;
  if (rule === undefined) {
    const meaning = MEANINGS[`${status} ${error_code}`];
    const why = meaning === undefined ? '' : `: ${meaning}`;
    return `answered by the gateway: ${status ?? 'connection closed'}${code}${why}`;
  }
  const why = `${ruleTitle(rule)}: ${rule.actions.at(-1) ?? 'failed'}`;
  if (answered_by === 'endpoint') return `answered by an internal endpoint: ${why}, ${status}`;
  return status === null
    ? `connection closed by the gateway: ${why}`
    : `answered by the gateway: ${why}, ${status}${code}`;
}

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
