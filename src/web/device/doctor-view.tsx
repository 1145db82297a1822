import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { PageFinding } from '../../agent/api/page/page-routes.ts';
import { ApiProblem, call } from '../ui/api.ts';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { Badge, ProblemNotice, type Tone } from '../ui/notice.tsx';

const STATUS = { ok: 'OK', failed: 'Problem', skipped: 'Skipped' } as const;

const TONES: Record<FindingView['status'], Tone> = { ok: 'good', failed: 'bad', skipped: 'neutral' };
const ORDER: FindingView['status'][] = ['failed', 'ok', 'skipped'];

/** The findings of a diagnosis, problems first. */
export function Doctor({ onClose }: { onClose: () => void }): JSX.Element {
  const result = useSignal<readonly FindingView[] | ApiProblem | null>(null);
  const run = async () => {
    result.value = null;
    result.value = await runDoctor().catch((error: unknown) => {
      if (error instanceof ApiProblem) return error;
      throw error;
    });
  };
  useEffect(() => void run(), []);
  const found = result.value;
  return (
    <Dialog title="Diagnosis" onClose={onClose} wide>
      <div role="status">
        {found === null && (
          <p class="with-spinner">
            Checking settings, disk, clock, network, gateway and upstreams. This takes a few seconds.
          </p>
        )}
        {Array.isArray(found) && <p>{summary(found)}</p>}
      </div>
      {found instanceof ApiProblem && <ProblemNotice title="The diagnosis did not run" problem={found} />}
      {Array.isArray(found) && (
        <ul class="findings">
          {found
            .toSorted((a: FindingView, b: FindingView) => ORDER.indexOf(a.status) - ORDER.indexOf(b.status))
            .map(({ check, title, status, detail, advice }: FindingView) => (
              <li key={check + detail}>
                <Badge tone={TONES[status]}>{STATUS[status]}</Badge>
                <div>
                  <strong>{title}</strong>
                  <p>{detail}</p>
                  {advice !== null && <p class="advice">{advice}</p>}
                </div>
              </li>
            ))}
        </ul>
      )}
      {found !== null && <Button onClick={() => void run()}>Check again</Button>}
    </Dialog>
  );
}

function summary(findings: readonly FindingView[]): string {
  const count = findings.filter(({ status }) => status === 'failed').length;
  return count === 0 ? 'No problems found.' : count === 1 ? '1 problem found.' : `${count} problems found.`;
}

export type FindingView = PageFinding;

/** Runs the checks of `device-agent doctor` on the device; takes up to ten seconds. */
export async function runDoctor(): Promise<FindingView[]> {
  return (await call<{ findings: FindingView[] }>('POST', '/page/doctor')).findings;
}
