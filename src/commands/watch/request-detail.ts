import type {
  BodyReport,
  MessageReport,
  RequestDetail,
  RequestSummary,
} from '../../agent/api/inspection/inspection-reports.ts';
import { outcomeText, ruleTitle, verdictText } from '../../agent/api/inspection/rule-text.ts';
import { printable, printableLines } from '../../lib/terminal-text.ts';

type Header = RequestDetail['request']['headers'][number];

export function requestText(detail: RequestDetail, messages: readonly MessageReport[]): string {
  const { id, kind, method, path, http_version, request, response, client, started_at, error, masked } = detail;
  const facts = [
    `request ${id}`,
    new Date(started_at).toLocaleString('sv'),
    ...(client === null ? [] : [`from ${printable(client)}`]),
    durations(detail),
    ...(masked ? ['secrets masked, see --reveal'] : []),
  ];
  return [
    `# ${facts.join(', ')}`,
    ...gatewayLines(detail),
    `${printable(method)} ${printable(path)}${http_version === '' ? '' : ` HTTP/${http_version}`}`,
    ...headerLines(request.headers),
    ...bodyLines(request.body),
    ...headerLines(request.trailers),
    '',
    ...(error === null ? [] : [`# ${printable(error)}`]),
    ...(response === null
      ? [detail.captured ? '# no response' : '# it did not reach the agent']
      : [
          `HTTP/${response.http_version} ${detail.status} ${printable(response.status_text)}`.trimEnd(),
          ...headerLines(response.headers),
          ...bodyLines(response.body),
          ...headerLines(response.trailers),
        ]),
    // The body of an event stream has its events, unless it was cut.
    ...(messages.length === 0 || (kind === 'events' && response?.body?.truncated === false)
      ? []
      : ['', ...messages.map(messageLine)]),
    '',
  ].join('\n');
}

function messageLine({ at, from, type, text, base64, bytes, event, error, truncated }: MessageReport): string {
  const arrow = from === 'client' ? '→' : '←';
  const time = new Date(at).toTimeString().slice(0, 8);
  const name = event !== null && event !== 'message' ? `${printable(event)}: ` : '';
  const shown = error === null ? (text ?? closeText(type, base64) ?? `${type}, ${bytesText(bytes)}`) : `(${error})`;
  return `${time} ${arrow} ${name}${printable(shown)}${truncated && error === null ? '…' : ''}`;
}

/** A close frame has a code of two bytes and a reason. */
function closeText(type: MessageReport['type'], base64: string | null): string | null {
  if (type !== 'close') return null;
  const bytes = Buffer.from(base64 ?? '', 'base64');
  return bytes.length < 2 ? 'close' : `close ${bytes.readUInt16BE()} ${bytes.toString('utf8', 2)}`.trimEnd();
}

function gatewayLines(detail: RequestDetail): string[] {
  const { gateway } = detail;
  if (gateway === null) return [];
  const { path, upstream_path, rules } = gateway;
  const verdict = verdictText(detail);
  return [
    ...(verdict === null ? [] : [`# ${printable(verdict)}`]),
    ...(upstream_path === null || upstream_path === path ? [] : [`# the client asked for ${printable(path)}`]),
    ...rules.map((rule) => {
      const outcome = outcomeText(rule);
      const text = `${ruleTitle(rule)}: ${rule.actions.join(', ')}${outcome === null ? '' : `: ${outcome}`}`;
      return `# ${printable(text)}`;
    }),
  ];
}

function durations({ duration_ms, timing: { waiting_ms } }: RequestDetail): string {
  return waiting_ms === null ? msText(duration_ms) : `${msText(duration_ms)} (waited ${msText(waiting_ms)})`;
}

function headerLines(headers: readonly Header[]): string[] {
  return headers.map(({ name, value }) => `${printable(name)}: ${printable(value)}`);
}

function bodyLines(body: BodyReport | null): string[] {
  if (body === null) return [];
  const { text, bytes, truncated, content_type, error } = body;
  const notes = [
    ...(text === null ? [`# ${printable(content_type ?? 'binary')}, ${bytesText(bytes)}`] : []),
    ...(truncated ? [`# cut: ${bytesText(bytes)} were sent`] : []),
    ...(error === null ? [] : [`# cannot be decoded: ${printable(error)}`]),
  ];
  return ['', ...(text === null ? [] : [printableLines(pretty(text, body))]), ...notes];
}

function pretty(text: string, { content_type, truncated }: BodyReport): string {
  if (truncated || !/[/+]json\b/i.test(content_type ?? '')) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

interface Screen {
  /** Columns of the terminal; infinite where nobody reads it on one. */
  width: number;
  color: boolean;
}

const COLUMNS: readonly [title: string, width: number, isNumber?: boolean][] = [
  ['TIME', 8],
  ['ID', 5],
  ['METHOD', 7],
  ['STATUS', 6],
  ['TOOK', 8, true],
  ['SIZE', 8, true],
  ['CLIENT', 15],
];
const STATE_COLORS = { ok: 32, redirect: 36, client: 33, server: 31 } as const;

export function columnTitles(): string {
  return [...COLUMNS.map(([title, width, isNumber]) => cell(title, width, isNumber)), 'PATH'].join('  ');
}

/** One request on one line. The path comes last: it loses its end on a narrow terminal. */
export function requestLine(request: RequestSummary, { width, color }: Screen): string {
  const { id, method, state, started_at, duration_ms, response_bytes, client, path, messages, kind } = request;
  const isLive = state === 'open' && kind !== 'http';
  const values = [
    new Date(started_at).toTimeString().slice(0, 8),
    id,
    printable(method),
    statusText(request),
    isLive ? '-' : msText(duration_ms),
    bytesText(response_bytes),
    printable(client ?? '-'),
  ];
  const cells = values.map((value, at) => {
    const [title, columns, isNumber] = COLUMNS[at] ?? ['', 0];
    const padded = cell(value, columns, isNumber);
    return title === 'STATUS' && color ? `\u001b[${colorOf(request)}m${padded}\u001b[0m` : padded;
  });
  const head = `${cells.join('  ')}  `;
  const plain = COLUMNS.reduce((sum, [, columns], at) => sum + Math.max(columns, values[at]?.length ?? 0) + 2, 0);
  const note = noteOf(request, messages);
  return head + cut(printable(path) + note, width - plain);
}

/** `3 ms`, `1.25 s` or `2 min`. */
function msText(ms: number): string {
  if (ms < 1_000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  return ms < 120_000 ? `${(ms / 1_000).toFixed(2)} s` : `${Math.round(ms / 60_000)} min`;
}

/** `17 B`, `1.2 kB` or `3.4 MB`. */
function bytesText(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  const [value, unit] = bytes < 1_000_000 ? [bytes / 1_000, 'kB'] : [bytes / 1_000_000, 'MB'];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

function statusText({ status, state }: RequestSummary): string {
  if (status !== null) return state === 'aborted' ? `${status}!` : String(status);
  return state === 'open' ? '…' : state === 'failed' ? 'failed' : 'none';
}

function colorOf({ status, state }: RequestSummary): number {
  if (state === 'failed' || state === 'aborted' || status === null || status >= 500) return STATE_COLORS.server;
  if (status >= 400) return STATE_COLORS.client;
  return status >= 300 ? STATE_COLORS.redirect : STATE_COLORS.ok;
}

function noteOf({ kind, state, error, replay_of, answered_by }: RequestSummary, messages: number): string {
  const notes = [
    ...(answered_by === 'gateway' && error === null ? ['by the gateway'] : []),
    ...(answered_by === 'endpoint' ? ['by an internal endpoint'] : []),
    ...(replay_of === null ? [] : [`replay of ${replay_of}`]),
    ...(kind === 'websocket' ? [`WebSocket, ${counted(messages, 'message')}`] : []),
    ...(kind === 'events' ? [counted(messages, 'event')] : []),
    ...(state === 'open' && kind !== 'http' ? ['open'] : []),
    ...(error === null ? [] : [printable(error)]),
  ];
  return notes.length === 0 ? '' : `  (${notes.join('; ')})`;
}

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;

function cell(text: string, width: number, isNumber = false): string {
  return isNumber ? text.padStart(width) : text.padEnd(width);
}

function cut(text: string, width: number): string {
  if (text.length <= width) return text;
  return `${text.slice(0, Math.max(0, width - 1))}…`;
}
