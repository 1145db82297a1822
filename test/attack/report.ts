import type { AttackResult } from './attack.ts';
import type { Visited } from './honest-clients.ts';

/** What a run has shown. */
export interface Outcome {
  /** ISO 8601, without the time. */
  date: string;
  minutes: number;
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

/** The most that 99 % of honest requests of a kind may take. */
const MAX_P99_MS = 1000;

/** Whether nobody honest has noticed the attack: no request failed, p99 is at most 1 s, and no session was lost. */
export function isWithstood({ underAttack, sessionsLost }: Outcome): boolean {
  const isServed = underAttack.kinds.every(
    ({ besideAttackers, failures, p99 }) => besideAttackers || (countOf(failures) === 0 && p99 <= MAX_P99_MS),
  );
  return isServed && sessionsLost.length === 0;
}

/** A chapter of docs/reliability.md. */
export function attackReport(outcome: Outcome): string {
  const { quiet, underAttack, results, sessionsLost, peaks, core } = outcome;
  const clients = underAttack.kinds.map(({ kind, requests, failures, p50, p99, max }, at) => {
    const alone = quiet.kinds[at]?.p99 ?? Number.NaN;
    const why = Object.entries(failures).map(([reason, times]) => `${times} × ${reason}`);
    return [kind, count(requests), count(countOf(failures)), ms(p50), ms(p99), ms(max), ms(alone), why.join(', ')];
  });
  const attacks = results.map(({ name, connections, refused, ended }) => [
    name,
    ...[connections, refused, ended].map(count),
  ]);
  return `## Small gateway under attack

\`npm run attack -- ${outcome.minutes} --report\` writes this chapter. A gateway with a heap of ${outcome.heapMib} MiB, ${outcome.descriptors} file
descriptors and one core is attacked by clients, by connections without an authtoken to the session port, by a tenant with a valid authtoken, and by
a broken upstream, all at once. Honest clients and agents work beside them, from other addresses. The run is withstood when none
of their requests fails, 99 % of each kind are answered within ${MAX_P99_MS / 1000} s, and no session of theirs ends. An agent that is refused
tries again after a second, once. Honest clients at an attacker's address share what that address may use, so theirs may fail.

Run on ${outcome.date} for ${outcome.minutes} minutes: ${isWithstood(outcome) ? 'withstood' : 'not withstood'}. Honest sessions lost: ${sessionsLost.length}${sessionsLost.length > 0 ? ` (${[...new Set(sessionsLost)].join(', ')})` : ''}. Peaks of the
gateway: ${peaks.rssMib} MiB resident, ${peaks.descriptors} descriptors. It ran for ${percent(core.used)} of the time; for ${percent(core.waited)} it had to wait for its core, which
V8's helper thread or other programs used. The clients' own process was late by ${ms(underAttack.lateP99)} (p99; ${ms(quiet.lateP99)} without attack).

${table(['Honest requests', 'Sent', 'Failed', 'p50', 'p99', 'max', 'p99 without attack', ''], clients)}

${table(['Attack', 'Connections', 'Refused', 'Closed by the gateway'], attacks)}
`;
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
