import { callAgent, type ListedTunnel, type StatusReport } from '../agent/api-client.ts';
import {
  because,
  CHANGE_TLS,
  CORRECT_UPSTREAM,
  endpointAdvice,
  type Name,
  RESTART_UPSTREAM,
  START_UPSTREAM,
  sessionAdvice,
} from '../doctor/advice.ts';
import { diskProblem } from '../doctor/data-folder.ts';
import { ownCommand } from '../lib/process/own-command.ts';
import { durationText, wantsColor } from '../lib/terminal-text.ts';
import { show } from './output.ts';
import { agentSettings } from './settings-place.ts';

/** What keeps the agent or a tunnel from working, and what to do. */
interface Problem {
  problem: string;
  /** Null when the problem contains it. */
  remedy: string | null;
}

const DEADLINE_MS = 10_000;
/** Problems of tunnels that are listed; one more line counts the others. */
const MAX_PROBLEMS = 5;
const [GREEN, RED] = [32, 31];

/**
 * Prints the status of the running agent. The exit code is 0 when everything works, else 1.
 *
 * @throws {OperatorError} exit code 3 when no agent answers
 */
export async function status({ json }: { json?: boolean }): Promise<void> {
  const settings = agentSettings('api');
  // First: listing checks the upstreams, which the status counts.
  const tunnels = await callAgent(settings, 'GET /tunnels', { deadlineMs: DEADLINE_MS });
  const report = await callAgent(settings, 'GET /status', { deadlineMs: DEADLINE_MS });
  // Finds a full disk before a change fails, where this user may.
  const disk = await diskProblem(settings.dataDir);
  const unsaved = disk ? { problem: disk.detail, remedy: disk.advice } : unsavedChange(report);
  const problems = [...(unsaved ? [unsaved] : []), ...statusProblems(report, tunnels)];
  const page = pageOf(report);
  const color = wantsColor(process.stdout, process.env);
  show({ ok: problems.length === 0, ...report, page, problems }, { json }, (shown) =>
    render(shown, shown.problems, { page: shown.page, now: Date.now(), color }),
  );
  process.exitCode = problems.length === 0 ? 0 : 1;
}

function unsavedChange({ storage: { last_error } }: StatusReport): Problem | null {
  return last_error && { problem: last_error.message, remedy: 'then repeat the change; this stays until one is saved' };
}

/** The problems, those first that cause others. */
export function statusProblems(
  { session, remote_api: own }: StatusReport,
  tunnels: readonly ListedTunnel[],
): Problem[] {
  if (session.state !== 'online') {
    const problem = `no session with ${session.gateway} (${session.state})${because(session.last_error)}`;
    return [{ problem, remedy: sessionAdvice(session.last_error) }];
  }
  const ofTunnels = tunnels.flatMap((tunnel) => problemOf(tunnel, tunnel) ?? []);
  const more = ofTunnels.length - MAX_PROBLEMS;
  const ofOwn = own && problemOf(own, { domain: new URL(own.url).hostname, protocol: 'http', isOwn: true });
  return [
    ...(ofOwn ? [ofOwn] : []),
    ...ofTunnels.slice(0, MAX_PROBLEMS),
    ...(more > 0 ? [{ problem: `and ${more} more tunnels`, remedy: `list them with: ${ownCommand('tunnels')}` }] : []),
  ];
}

const REMEDIES: Readonly<Record<string, string>> = {
  tls_failed: CHANGE_TLS,
  wrong_protocol: CORRECT_UPSTREAM,
  hangs: RESTART_UPSTREAM,
};

type Endpoint = Pick<ListedTunnel, 'url' | 'status' | 'last_error'> & Partial<Pick<ListedTunnel, 'upstream'>>;

function problemOf({ url, status, last_error, upstream }: Endpoint, name: Name): Problem | null {
  if (status === 'online') return null;
  const problem = `${url} is ${status}${because(last_error)}`;
  if (status === 'degraded') return { problem, remedy: REMEDIES[upstream?.state ?? ''] ?? START_UPSTREAM };
  return { problem, remedy: last_error?.code ? endpointAdvice(last_error.code, name) : null };
}

function pageOf({ addresses }: StatusReport): string | null {
  return addresses.api ? `${addresses.api}/` : null;
}

interface Rendering {
  page: string | null;
  now: number;
  color: boolean;
}

function render(report: StatusReport, problems: readonly Problem[], { page, now, color }: Rendering): string {
  const paint = (text: string, code: number) => (color ? `\u001b[${code}m${text}\u001b[0m` : text);
  // Agents of earlier versions say neither how the budget nor how the clock is.
  const { session, tunnels, remote_api: own, data_budget: budget = null } = report;
  const rows: [string, string][] = [
    ['Session', `${session.state} for ${since(session.since, now)}, ${gateways(session)}${reconnects(session)}`],
    ['Local API', report.addresses.api ?? 'not listening'],
    ['Remote API', own ? `${own.status} for ${since(own.since, now)}, ${own.url}` : 'none; AGENT_DOMAIN is not set'],
    ['Page', page ?? 'none'],
    ['Tunnels', countsOf(tunnels)],
    ...(report.clock?.source === 'gateway' ? [['Clock', clockText(report.clock)] satisfies [string, string]] : []),
    ...(budget === null ? [] : [['Data', budgetText(budget)] satisfies [string, string]]),
    ['Version', `${report.version}, running for ${durationText(report.uptime_seconds)}`],
  ];
  const width = Math.max(...rows.map(([label]) => label.length));
  const verdict = problems.length === 0 ? paint('✔ Everything works.', GREEN) : null;
  return [
    ...rows.map(([label, value]) => `${label.padEnd(width)}  ${value}`),
    '',
    ...(verdict === null ? [] : [verdict]),
    ...problems.flatMap(({ problem, remedy }) => [
      `${paint('✖', RED)} ${problem}`,
      ...(remedy === null ? [] : [`  → ${remedy}`]),
    ]),
  ].join('\n');
}

function clockText({ system_ahead_seconds: ahead }: StatusReport['clock']): string {
  const off = ahead === null ? '' : ` (${durationText(Math.abs(ahead))} ${ahead > 0 ? 'ahead' : 'behind'})`;
  return `wrong on this machine${off}; the agent uses the time that its gateway proves`;
}

const since = (time: string, now: number): string => durationText((now - Date.parse(time)) / 1000);

function budgetText({
  level,
  used_bytes,
  limit_bytes,
  until,
  next_at,
  // An agent of an earlier version does not count them.
  tunnels: [most] = [],
}: NonNullable<StatusReport['data_budget']>): string {
  const by = most === undefined ? '' : `, ${(most.bytes / 1e6).toFixed(1)} MB of it by ${most.url}`;
  const used = `${(used_bytes / 1e6).toFixed(1)} of ${limit_bytes / 1e6} MB until ${until.slice(0, 10)}${by}`;
  if (next_at !== null) return `${used}; used up: online again at ${next_at.slice(0, 16).replace('T', ' ')} UTC`;
  return level === 'paused' || level === 'spent' ? `${used}; tunnels are paused` : used;
}

function gateways({ gateway, second_gateway: second }: StatusReport['session']): string {
  return second === undefined ? gateway : `${gateway} and ${second}`;
}

function reconnects({ reconnects: count }: StatusReport['session']): string {
  if (count === 0) return '';
  return count === 1 ? ', 1 reconnect' : `, ${count} reconnects`;
}

function countsOf({ total, ...states }: StatusReport['tunnels']): string {
  if (total === 0) return `none; start one with: ${ownCommand('http 8001')}`;
  const present = Object.entries(states).filter(([, count]) => count > 0);
  return `${total}: ${present.map(([state, count]) => `${count} ${state}`).join(', ')}`;
}
