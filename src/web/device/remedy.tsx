import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { type Finding, runDoctor } from './doctor-call.ts';

/** Brief outages need no diagnosis. */
const PATIENCE_MS = 3_000;
const MAX_SHOWN = 3;

/**
 * Runs the diagnosis and shows what it advises.
 *
 * @param known what the page says already
 */
export function Remedy({ known }: { known: string | null }): JSX.Element | null {
  const findings = useSignal<readonly Finding[] | null>(null);
  useEffect(() => {
    const timer = window.setTimeout(() => {
      void runDoctor().then(
        (found) => {
          findings.value = found;
        },
        () => {
          findings.value = [];
        },
      );
    }, PATIENCE_MS);
    return () => window.clearTimeout(timer);
  }, []);

  if (findings.value === null) return <p class="remedy hint">Looking for the cause…</p>;
  const problems = findings.value.filter(({ status }) => status === 'failed').slice(0, MAX_SHOWN);
  if (problems.length === 0) return null;
  return (
    <div class="remedy">
      <h3>What to do</h3>
      <ul>
        {problems.map(({ check, detail, advice }) => (
          <li key={check + detail}>
            {!(known !== null && advice !== null && detail.includes(known)) && <p>{detail}</p>}
            {advice !== null && <p class="advice">{advice}</p>}
          </li>
        ))}
      </ul>
    </div>
  );
}
