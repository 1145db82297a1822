import type { AttackResult } from './attack.ts';
import type { Visited } from './honest-clients.ts';

/** What a run has shown. */
export interface Outcome {
  /** ISO 8601, without the time. */
  date: string;
  minutes: number;
  /** The text in the names of the attacks that were carried out; empty: all were. */
  only: string;
  heapMib: number;
  descriptors: number;
  /** Honest clients before the attack. */
  quiet: Visited;
  underAttack: Visited;
  results: readonly AttackResult[];
  /** Reasons why honest agents lost their sessions. */
  sessionsLost: readonly string[];
  peaks: { rssMib: number; descriptors: number };
  /** Parts of the time in which the gateway ran, and in which other threads, of its own or of others, kept it from its core. */
  core: { used: number; waited: number };
}

/** The most that 99 % of honest requests of a kind may take: beside all attacks at once, and beside one. */
const MAX_P99_MS = 1000;
const MAX_P99_BESIDE_ONE_MS = 100;
/** Beside one attack, half of the requests may take so many times as long as without it; 99 % too, on a machine that is busy already. */
const MAX_TIMES = 2;
/** Milliseconds that half of them may take in any case: the clients' own processor is shared with the attackers. */
const ALWAYS_MS = 10;
/**
 * The gateway's resident memory beside one attack, in MiB, with a heap of 256 MiB: the heap, the budgets for requests (an eighth of
 * it), for bodies that policies read (64) and for data of agents (64), and 96 for the program itself.
 */
const BESIDE_HEAP = { shares: 1 / 8, mib: 64 + 64 + 96 };

const maxRss = ({ heapMib }: Outcome) => heapMib * (1 + BESIDE_HEAP.shares) + BESIDE_HEAP.mib;

/**
 * What somebody honest has noticed of the attack: requests that failed or took too long, and lost sessions. One attack alone must not
 * slow others down noticeably, nor take more memory than the gateway counts.
 *
 * @returns empty when it was withstood
 */
export function faultsOf(outcome: Outcome): string[] {
  const { quiet, underAttack, sessionsLost, peaks, only } = outcome;
  const faults = sessionsLost.length > 0 ? [`${sessionsLost.length} honest sessions lost`] : [];
  underAttack.kinds.forEach(({ kind, besideAttackers, failures, p50, p99 }, at) => {
    if (besideAttackers) return;
    const failed = countOf(failures);
    const { p50: half = 0, p99: most = 0 } = quiet.kinds[at] ?? {};
    const maxP50 = only === '' ? Infinity : Math.max(ALWAYS_MS, MAX_TIMES * half);
    const maxP99 = only === '' ? MAX_P99_MS : Math.max(MAX_P99_BESIDE_ONE_MS, MAX_TIMES * most);
    const noticed = [
      ...(failed > 0 ? [`${failed} failed`] : []),
      ...(p50 > maxP50 ? [`p50 of ${ms(p50)} is above ${ms(maxP50)}`] : []),
      ...(p99 > maxP99 ? [`p99 of ${ms(p99)} is above ${ms(maxP99)}`] : []),
    ];
    if (noticed.length > 0) faults.push(`${kind}: ${noticed.join(', ')}`);
  });
  if (only !== '' && peaks.rssMib > maxRss(outcome))
    faults.push(`${peaks.rssMib} MiB resident are above ${maxRss(outcome)} MiB`);
  return faults;
}

/** A chapter of docs/reliability.md. */
export function attackReport(outcome: Outcome): string {
  const { quiet, underAttack, results, sessionsLost, peaks, core } = outcome;
  const clients = underAttack.kinds.map(({ kind, requests, failures, p50, p99, max }, at) => {
    const { p50: half = Number.NaN, p99: most = Number.NaN } = quiet.kinds[at] ?? {};
    const why = Object.entries(failures).map(([reason, times]) => `${times} × ${reason}`);
    return [
      kind,
      count(requests),
      count(countOf(failures)),
      ms(p50),
      ms(p99),
      ms(max),
      ms(half),
      ms(most),
      why.join(', '),
    ];
  });
  const attacks = results.map(({ name, connections, refused, ended }) => [
    name,
    ...[connections, refused, ended].map(count),
  ]);
  const faults = faultsOf(outcome);
  const verdict =
    faults.length === 0 ? 'withstood' : outcome.only === '' ? 'not withstood' : `not withstood (${faults.join('; ')})`;
  return `${outcome.only === '' ? introduction(outcome) : rules(outcome)}

Run on ${outcome.date} for ${outcome.minutes} minutes: ${verdict}. Honest sessions lost: ${sessionsLost.length}${sessionsLost.length > 0 ? ` (${[...new Set(sessionsLost)].join(', ')})` : ''}. Peaks of the
gateway: ${peaks.rssMib} MiB resident, ${peaks.descriptors} descriptors. It ran for ${percent(core.used)} of the time; for ${percent(core.waited)} it had to wait for its core, which
V8's helper thread or other programs used. The clients' own process was late by ${ms(underAttack.lateP99)} (p99; ${ms(quiet.lateP99)} without attack).

${table(['Honest requests', 'Sent', 'Failed', 'p50', 'p99', 'max', 'p50 without attack', 'p99 without attack', ''], clients)}

${table(['Attack', 'Connections', 'Refused', 'Closed by the gateway'], attacks)}
`;
}

function introduction(outcome: Outcome): string {
  return `## Small gateway under attack

\`npm run attack -- ${outcome.minutes} --report\` writes this chapter. A gateway with a heap of ${outcome.heapMib} MiB, ${outcome.descriptors} file
descriptors and one core is attacked by clients, by connections without an authtoken to the session port, by tenants with valid authtokens, and by
broken upstreams, all at once. Some clients want all of what another tenant's policies may take. Honest clients and agents work beside them, from other addresses. The run is withstood when none
of their requests fails, 99 % of each kind are answered within ${MAX_P99_MS / 1000} s, and no session of theirs ends. An agent that is refused
tries again after a second, once. Honest clients at an attacker's address share what that address may use, so theirs may fail.`;
}

function rules(outcome: Outcome): string {
  return `"${outcome.only}" alone is withstood when no honest request fails and no honest session ends; when half of the requests of each
kind take at most ${ALWAYS_MS} ms, 99 % at most ${MAX_P99_BESIDE_ONE_MS} ms, or both at most twice as long as without the attack; and when the gateway's resident
memory stays below ${maxRss(outcome)} MiB.`;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  const rule = line(head.map((title, at) => (at === 0 || title === '' ? '---' : '---:')));
  return [line(head), rule, ...rows.map(line)].join('\n');
}

const countOf = (failures: Record<string, number>) => Object.values(failures).reduce((sum, times) => sum + times, 0);
const percent = (share: number) => `${Math.round(share * 100)} %`;
const count = (value: number) => value.toLocaleString('en');
const ms = (value: number) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
