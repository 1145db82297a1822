import type { JSX } from 'preact';
import type { RequestDetail } from '../../../agent/api/inspection/inspection-reports.ts';
import { outcomeText, ruleTitle, verdictText } from '../../../agent/api/inspection/rule-text.ts';

/** Which rules of the traffic policy acted, and who answered; nothing while the gateway has not reported it. */
export function RulesView({ detail }: { detail: RequestDetail }): JSX.Element | null {
  const { gateway } = detail;
  if (gateway === null) return null;
  const { path, upstream_path: upstreamPath, rules } = gateway;
  const verdict = verdictText(detail);
  return (
    <section class="exchange" aria-labelledby="gateway">
      <h3 id="gateway">Traffic policy</h3>
      {verdict !== null && <p class="verdict">{verdict}</p>}
      {rules.length === 0 && verdict === null && <p class="hint">No rule acted.</p>}
      {rules.length > 0 && (
        <ol class="rules">
          {rules.map((rule, at) => (
            <li key={at}>
              <span>{ruleTitle(rule)}</span> <code>{rule.actions.join(', ')}</code> <em>{outcomeText(rule)}</em>
            </li>
          ))}
        </ol>
      )}
      {upstreamPath !== null && upstreamPath !== path && (
        <dl class="pairs">
          <div>
            <dt>Path the client asked for</dt>
            <dd>{path}</dd>
          </div>
        </dl>
      )}
    </section>
  );
}
