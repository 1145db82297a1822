import { setTimeout as delay } from 'node:timers/promises';
import { callAgent, type ListedTunnel } from '../../agent/api-client.ts';
import { EXIT_UNREACHABLE, messageOf, OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { durationText, wantsColor } from '../../lib/terminal-text.ts';
import type { Settings } from '../../settings/agent-settings.ts';
import { jsonText, note, print, redraw, renderTable, show, widthOf } from '../output.ts';
import { agentSettings } from '../settings-place.ts';
import { stopSignal } from '../until-stopped.ts';

interface ListOptions {
  json?: boolean;
  watch?: boolean;
}

interface Screen {
  now: number;
  width: number;
  color: boolean;
}

const WATCH_MS = 2_000;
const WATCH_DEADLINE_MS = 5_000;
/** An upstream is checked every minute; what is older than this is no longer shown as the present. */
const STALE_MS = 120_000;
const COLORS: Readonly<Record<ListedTunnel['status'], number>> = {
  online: 32,
  degraded: 33,
  connecting: 33,
  offline: 31,
  failed: 31,
};
const COLUMNS = [
  // In full, it is what other commands take.
  { title: 'NAME', goes: 5 },
  { title: 'STATE' },
  { title: 'URL', isMain: true },
  { title: 'FORWARDS TO', minWidth: 14, goes: 4 },
  { title: 'UPSTREAM', goes: 3 },
  { title: 'REQUESTS', goes: 2 },
  { title: 'LAST', goes: 1 },
];
const EMPTY = `No tunnels. Start one with: ${ownCommand('tunnels start 8001 --domain HOSTNAME')}`;

/** Prints the tunnels; with `watch`, every two seconds until it is stopped. */
export async function listTunnels({ json, watch }: ListOptions): Promise<void> {
  const settings = agentSettings('api');
  if (watch) return watchTunnels(settings, json === true);
  const tunnels = await callAgent(settings, 'GET /tunnels');
  show(tunnels, { json }, (shown) => renderTunnels(shown, screen()));
}

export function renderTunnels(tunnels: readonly ListedTunnel[], { now, width, color }: Screen): string {
  if (tunnels.length === 0) return EMPTY;
  const paint = (state: ListedTunnel['status']) => (color ? `\u001b[${COLORS[state]}m${state}\u001b[0m` : state);
  const rows = tunnels.map(({ url_part, status, url, forwards_to, upstream, traffic }) => [
    url_part,
    paint(status),
    url,
    forwards_to,
    upstreamText(upstream, now),
    traffic === null ? '-' : String(traffic.requests),
    traffic?.last_at ? `${ago(traffic.last_at, now)} ago` : '-',
  ]);
  return renderTable(COLUMNS, rows, width);
}

function upstreamText({ state: shown, since, checked_at }: ListedTunnel['upstream'], now: number): string {
  const state = shown.replace('_', ' ');
  if (checked_at === null || since === null) return '-';
  if (now - Date.parse(checked_at) > STALE_MS) return `${state} ${ago(checked_at, now)} ago`;
  return state === 'answers' ? state : `${state} for ${ago(since, now)}`;
}

/** An agent that stops answering replaces the table: old states must not look like present ones. */
async function watchTunnels(settings: Settings, json: boolean): Promise<void> {
  const stopped = stopSignal();
  let answeredAt: number | null = null;
  while (!stopped.aborted) {
    try {
      const tunnels = await callAgent(settings, 'GET /tunnels', { deadlineMs: WATCH_DEADLINE_MS });
      answeredAt = Date.now();
      if (json) print(jsonText(tunnels, 0));
      else draw(renderTunnels(tunnels, screen()));
    } catch (error) {
      if (!(error instanceof OperatorError) || error.exitCode !== EXIT_UNREACHABLE || answeredAt === null) throw error;
      const silent = durationText((Date.now() - answeredAt) / 1000);
      const line = `No answer for ${silent}: ${messageOf(error)}`;
      if (json) note(line);
      else draw(line);
    }
    await delay(WATCH_MS, undefined, { signal: stopped }).catch(() => {}); // stopped
  }
}

function draw(text: string): void {
  const time = new Date().toTimeString().slice(0, 8);
  if (process.stdout.isTTY) redraw(`${time}, every ${WATCH_MS / 1000} s; Ctrl-C ends\n\n${text}`);
  else print(`${time}\n${text}\n`);
}

function screen(): Screen {
  return { now: Date.now(), width: widthOf(process.stdout), color: wantsColor(process.stdout, process.env) };
}

const ago = (time: string, now: number): string => durationText((now - Date.parse(time)) / 1000);
