import type { ComponentChildren, JSX } from 'preact';
import type { ApiProblem } from './api.ts';

export type Tone = 'good' | 'busy' | 'warning' | 'bad' | 'neutral';

/** A short text with a colour and a dot: never the colour alone. */
export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }): JSX.Element {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** A box that draws attention. */
export function Notice({ tone, children }: { tone: Tone; children: ComponentChildren }): JSX.Element {
  return <div class={`notice ${tone}`}>{children}</div>;
}

/** An error of the API: what failed, why, and its code to search for. */
export function ProblemNotice({ title, problem }: { title: string; problem: ApiProblem }): JSX.Element {
  const more = Object.entries(problem.details).filter(([, text]) => !problem.message.includes(text));
  return (
    <div class="notice bad" role="alert">
      <strong>{title}</strong>
      <p>{problem.message}</p>
      {more.length > 0 && (
        <ul>
          {more.map(([place, text]) => (
            <li key={place}>
              <code>{place}</code>: {text}
            </li>
          ))}
        </ul>
      )}
      {problem.code !== null && <p class="code-line">{problem.code}</p>}
    </div>
  );
}

/** What to do where a list would be. */
export function EmptyState({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <h3>{title}</h3>
      {children}
    </div>
  );
}
