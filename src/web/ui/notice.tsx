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

export interface ProblemNoticeProps {
  title: string;
  problem: ApiProblem;
  /** Whether the field of a place shows its problem. */
  isMarked?: (place: string) => boolean;
}

/** An error of the API: what failed, why, and its code to search for. Nothing is said twice. */
export function ProblemNotice({ title, problem, isMarked = () => false }: ProblemNoticeProps): JSX.Element {
  const { message } = problem;
  const details = Object.entries(problem.details);
  // The first of them, and how many there are.
  const isSummary = details.some(([place, text]) => message.startsWith(`${place}: ${text}`));
  const more = details.filter(([place, text]) => !isMarked(place) && (isSummary || !message.includes(text)));
  return (
    <div class="notice bad" role="alert">
      <strong>{title}</strong>
      {!isSummary && <p>{message}</p>}
      {isSummary && more.length < details.length && <p>Correct what is marked below.</p>}
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
