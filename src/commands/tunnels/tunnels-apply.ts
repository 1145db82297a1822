import { z } from 'zod';
import { readDeclared, type TunnelStep } from '../../agent/offline/saved-tunnels.ts';
import { OperatorError } from '../../lib/errors.ts';
import { show } from '../output.ts';
import { agentSettings } from '../settings-place.ts';
import { readText, STANDARD, take, withTunnels } from './tunnels-transfer.ts';

interface ApplyOptions {
  prune?: boolean;
  dryRun?: boolean;
  json?: boolean;
}

/** Its detail: what differs, or why it failed; null when there is nothing to say. */
type Outcome = Omit<TunnelStep, 'run'>;

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
  const stepsFor = await readDeclared(await readText(file, source), source, settings, prune === true);
  const outcomes = await withTunnels(settings, async (target) => {
    const done: Outcome[] = [];
    for (const step of stepsFor(target.present)) {
      const { run: _, ...planned } = step;
      if (dryRun) done.push(planned);
      else {
        const { answer, ...outcome } = await take(step, target);
        done.push({ ...outcome, detail: outcome.detail ?? noticeOf(answer) });
      }
    }
    return done;
  });
  show(outcomes, { json }, (shown) => describe(shown, dryRun === true));
  const failed = outcomes.filter(({ result }) => result === 'failed').length;
  if (failed > 0) throw new OperatorError(`${failed} of ${outcomes.length} tunnels differ from ${source}`);
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
