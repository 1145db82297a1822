import type { RequestSummary } from '../../agent/api/inspection/inspection-reports.ts';
import { printable } from '../../lib/terminal-text.ts';

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
export function msText(ms: number): string {
  if (ms < 1_000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  return ms < 120_000 ? `${(ms / 1_000).toFixed(2)} s` : `${Math.round(ms / 60_000)} min`;
}

/** `17 B`, `1.2 kB` or `3.4 MB`. */
export function bytesText(bytes: number): string {
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
