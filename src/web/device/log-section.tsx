import type { JSX } from 'preact';
import type { TailLine } from '../../lib/log/log-tail.ts';
import { Badge } from '../ui/notice.tsx';

const LEVEL = { warn: 'Warning', error: 'Error', fatal: 'Fatal' } as const;

/** The last warnings and errors, newest first. */
export function LogSection({ lines }: { lines: readonly TailLine[] }): JSX.Element {
  return (
    <section aria-labelledby="log">
      <h2 id="log">Warnings and errors</h2>
      {lines.length === 0 ? (
        <p class="hint">None since the agent started.</p>
      ) : (
        <ol class="card log" tabindex={0} aria-labelledby="log">
          {lines.map((line) => (
            <li key={line.number}>
              <time datetime={line.time}>{clockTime(line.time)}</time>
              <Badge tone={line.level === 'warn' ? 'warning' : 'bad'}>{LEVEL[line.level]}</Badge>
              <span class="message">
                {line.msg}
                {Object.entries(line.fields)
                  .filter(([, value]) => value !== null)
                  .map(([name, value]) => (
                    <span class="log-field" key={name}>
                      {name.replaceAll('_', ' ')}: {valueText(value)}
                    </span>
                  ))}
              </span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

/** A value of a field; of an error, what it says. */
function valueText(value: unknown): string {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map(valueText).join(', ');
  const { message } = Object(value) as { message?: unknown };
  return typeof message === 'string' ? message : JSON.stringify(value);
}

/** The time of day; with the date when it was not today. */
function clockTime(iso: string): string {
  const moment = new Date(iso);
  const isToday = moment.toDateString() === new Date().toDateString();
  return isToday
    ? moment.toLocaleTimeString('en-GB')
    : moment.toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'short' });
}
