import { outcomeText, ruleTitle, verdictText } from '../../agent/api/inspection/shown-requests.ts';
import type { BodyReport, MessageReport, RequestDetail, RequestSummary } from '../../agent/api-client.ts';
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

interface Column {
  title: string;
  width: number;
  isNumber?: boolean;
  /** When it is left out on a narrow terminal: the lowest one first; omitted: never. */
  goes?: number;
}

const COLUMNS: readonly Column[] = [
  { title: 'TIME', width: 8, goes: 3 },
  { title: 'ID', width: 5 },
  { title: 'METHOD', width: 7 },
  { title: 'STATUS', width: 6 },
  { title: 'TOOK', width: 8, isNumber: true, goes: 4 },
  { title: 'SIZE', width: 8, isNumber: true, goes: 2 },
  { title: 'CLIENT', width: 15, goes: 1 },
];
const GAP = '  ';
/** Columns for the path, before others stay beside it. */
const PATH_WIDTH = 24;
const STATE_COLORS = { ok: 32, redirect: 36, client: 33, server: 31 } as const;

export function columnTitles(width: number): string {
  return [...columnsFor(width).map((column) => cell(column.title, column)), 'PATH'].join(GAP);
}

function columnsFor(width: number): readonly Column[] {
  const going = COLUMNS.filter(({ goes }) => goes !== undefined).sort((a, b) => (a.goes ?? 0) - (b.goes ?? 0));
  let columns = COLUMNS;
  for (const next of going) {
    if (widthOf(columns) + PATH_WIDTH <= width) break;
    columns = columns.filter((column) => column !== next);
  }
  return columns;
}

const widthOf = (columns: readonly Column[]): number =>
  columns.reduce((sum, column) => sum + column.width + GAP.length, 0);

/** One request. The path comes last: when the line has no room for it, it gets one of its own. */
export function requestLine(request: RequestSummary, { width, color }: Screen): string {
  const { id, method, state, started_at, duration_ms, response_bytes, client, path, messages, kind } = request;
  const isLive = state === 'open' && kind !== 'http';
  const values: Readonly<Record<string, string>> = {
    TIME: new Date(started_at).toTimeString().slice(0, 8),
    ID: id,
    METHOD: printable(method),
    STATUS: statusText(request),
    TOOK: isLive ? '-' : msText(duration_ms),
    SIZE: bytesText(response_bytes),
    CLIENT: printable(client ?? '-'),
  };
  const cells = columnsFor(width).map((column) => cell(values[column.title] ?? '', column));
  const head = columnsFor(width).map(({ title }, at) => {
    return title === 'STATUS' && color ? `\u001b[${colorOf(request)}m${cells[at]}\u001b[0m` : cells[at];
  });
  const last = printable(path) + noteOf(request, messages);
  const isFitting = [...cells, last].join(GAP).length <= width;
  return isFitting ? [...head, last].join(GAP) : `${head.join(GAP).trimEnd()}\n${GAP}${last}`;
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

function cell(text: string, { width, isNumber = false }: Column): string {
  return isNumber ? text.padStart(width) : text.padEnd(width);
}
