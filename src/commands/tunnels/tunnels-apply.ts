import { z } from 'zod';
import {
  changeTo,
  declaredAmong,
  parseDeclaredTunnels,
  unchangeable,
  undeclaredAmong,
} from '../../agent/tunnels/declared-tunnels.ts';
import { differencesBetween, type ImportedTunnel } from '../../agent/tunnels/tunnel-import.ts';
import type { Tunnel } from '../../agent/tunnels/tunnels-file.ts';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import type { Settings } from '../../settings/agent-settings.ts';
import { loadDefaultPolicies } from '../../traffic-policy/load-default-policies.ts';
import { show } from '../output.ts';
import { agentSettings } from '../settings-place.ts';
import { readText, STANDARD, type TunnelsTarget, withTunnels } from './tunnels-transfer.ts';

interface ApplyOptions {
  prune?: boolean;
  dryRun?: boolean;
  json?: boolean;
}

interface Outcome {
  domain: string;
  result: 'created' | 'changed' | 'deleted' | 'unchanged' | 'failed';
  /** What differs, or why it failed; null when there is nothing to say. */
  detail: string | null;
}

interface Step extends Outcome {
  run: (target: TunnelsTarget) => Promise<unknown>;
}

/**
 * Makes the tunnels what a file declares: creates and changes them, and with `prune` deletes all others. A change that fails
 * leaves the tunnel as it was.
 *
 * @param file `-`: standard input
 * @throws {OperatorError} exit code 2 when the file is unusable, 1 when a step failed
 */
export async function applyTunnels(file: string, { prune, dryRun, json }: ApplyOptions): Promise<void> {
  const settings = agentSettings('data');
  const source = file === STANDARD ? 'standard input' : file;
  const declared = await parseDeclaredTunnels(await readText(file, source), source, {
    defaultPolicies: await loadDefaultPolicies(settings.defaultPolicies),
    reservedDomains: settings.api.domain === null ? [] : [settings.api.domain],
    site: settings.site,
  });
  const outcomes = await withTunnels(settings, async (target) => {
    const done: Outcome[] = [];
    const steps = stepsTo(declared, target.present, { prune: prune === true, site: settings.site });
    for (const step of steps) done.push(await take(step, target, dryRun));
    return done;
  });
  show(outcomes, { json }, (shown) => describe(shown, dryRun === true));
  const failed = outcomes.filter(({ result }) => result === 'failed').length;
  if (failed > 0) throw new OperatorError(`${failed} of ${outcomes.length} tunnels differ from ${source}`);
}

/** The steps in the order of the file; deletions first, which may free ports. */
function stepsTo(
  declared: readonly ImportedTunnel[],
  present: readonly Tunnel[],
  { prune, site }: { prune: boolean; site: Settings['site'] },
): Step[] {
  const superfluous = prune ? undeclaredAmong(present, declared, site) : [];
  return [
    ...superfluous.map((tunnel): Step => ({ ...deletion, domain: tunnel.domain, run: ({ remove }) => remove(tunnel) })),
    ...declared.map((tunnel) => stepFor(tunnel, declaredAmong(present, tunnel, site))),
  ];
}

const deletion = { result: 'deleted', detail: null } as const;

function stepFor(declared: ImportedTunnel, there: Tunnel | undefined): Step {
  const domain = there?.domain ?? declared.domain;
  if (!there) return { domain, result: 'created', detail: null, run: ({ create }) => create(declared) };
  const differing = differencesBetween(there, { ...declared, domain });
  if (differing.length === 0) return { domain, result: 'unchanged', detail: null, run: async () => {} };
  const detail = differing.join(' and ');
  const problem = unchangeable(differing);
  if (problem !== null) return { domain, result: 'failed', detail: problem, run: async () => {} };
  return { domain, result: 'changed', detail, run: ({ change }) => change(there, changeTo(declared, differing)) };
}

async function take({ run, ...outcome }: Step, target: TunnelsTarget, dryRun = false): Promise<Outcome> {
  if (dryRun) return outcome;
  try {
    const answer = await run(target);
    return { ...outcome, detail: outcome.detail ?? noticeOf(answer) };
  } catch (error) {
    return { ...outcome, result: 'failed', detail: messageOf(error).replace(/\n\s*/g, '; ') };
  }
}

const Notice = z.object({ notice: z.string() });

/** Why a created tunnel has another domain than the one declared. */
function noticeOf(answer: unknown): string | null {
  return Notice.safeParse(answer).data?.notice ?? null;
}

function describe(outcomes: readonly Outcome[], dryRun: boolean): string {
  const lines = outcomes.map(({ domain, result, detail }) => {
    return `${result.padEnd(9)}  ${domain}${detail === null ? '' : `: ${detail}`}`;
  });
  const counts = (['created', 'changed', 'deleted', 'unchanged', 'failed'] as const).flatMap((result) => {
    const count = outcomes.filter((outcome) => outcome.result === result).length;
    return count === 0 ? [] : [`${count} ${result}`];
  });
  const summary = counts.length === 0 ? 'no tunnels' : counts.join(', ');
  return [...lines, dryRun ? `${summary} (dry run: nothing was changed)` : summary].join('\n');
}
