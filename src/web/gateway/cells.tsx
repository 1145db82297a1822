import type { ComponentChildren, JSX } from 'preact';
import { UnicodeForm } from '../ui/address.tsx';
import { CopyButton } from '../ui/button.tsx';
import { present, span, spanSince } from '../ui/time-span.ts';
import type { Fact } from './section.ts';

/** How long ago a moment was; its date on hover. */
export function Ago({ moment }: { moment: string }): JSX.Element {
  return (
    <time datetime={moment} title={moment}>
      {spanSince(moment)} ago
    </time>
  );
}

/** How long something lasts already. */
export function For({ moment }: { moment: string }): JSX.Element {
  return (
    <time datetime={moment} title={moment}>
      {spanSince(moment)}
    </time>
  );
}

const CLOCK = { weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' } as const;

/** When something ends, by the clock of who reads it; in UTC on hover. */
export function SilencedUntil({ moment }: { moment: string }): JSX.Element {
  const date = new Date(moment);
  const left = date.getTime() - present.value;
  return (
    <time datetime={moment} title={moment}>
      {date.toLocaleString('en-GB', { ...CLOCK, timeZoneName: 'short' })}
      {left > 0 && `, in ${span(left)}`}
    </time>
  );
}

export interface NamedProps {
  name: string;
  below?: string | null | undefined;
  /** A hostname in it, whose Unicode form stands below as well. */
  unicode?: string;
}

/** A name with what tells it from others below. */
export function Named({ name, below, unicode = '' }: NamedProps): JSX.Element {
  return (
    <>
      <strong>{name}</strong>
      {below && below !== name && <span class="below">{below}</span>}
      <UnicodeForm of={unicode} />
    </>
  );
}

/** An id to copy. */
function Id({ id }: { id: string }): JSX.Element {
  return (
    <span class="with-copy">
      <code>{id}</code>
      <CopyButton text={id} what={id} />
    </span>
  );
}

/** The date of a moment, and whether it is near. */
export function dateOf(moment: string): string {
  const date = new Date(moment);
  const away = date.getTime() - Date.now();
  return away > 0 && away < 172_800_000
    ? `in ${span(away)}`
    : date.toLocaleDateString('en-GB', { dateStyle: 'medium' });
}

export interface Annotated {
  id: string;
  created_at: string;
  description?: string | null | undefined;
  metadata?: string | null | undefined;
}

/** The members that most resources have; empty ones are left out. */
export function commonFacts({ id, created_at, description, metadata }: Annotated): Fact[] {
  return [
    ...optional('Description', description),
    ...optional('Metadata', metadata && <pre>{metadata}</pre>),
    { label: 'Id', value: <Id id={id} /> },
    { label: 'Created', value: <Ago moment={created_at} /> },
  ];
}

/** A fact, if it has a value. */
export function optional(label: string, value: ComponentChildren): Fact[] {
  return value === undefined || value === null || value === false || value === '' ? [] : [{ label, value }];
}

/** Labels or headers, each as a code. */
export function Pairs({ of }: { of: Readonly<Record<string, string>> }): JSX.Element {
  const pairs = Object.entries(of).map(([name, value]) => `${name}=${value}`);
  return (
    <span class="pairs">
      {pairs.map((pair) => (
        <code key={pair}>{pair}</code>
      ))}
    </span>
  );
}

/** `name=value` lines, as {@link pairsOf} reads them. */
export function linesOfPairs(pairs: Readonly<Record<string, string>>, separator = '='): string {
  return Object.entries(pairs)
    .map(([name, value]) => `${name}${separator}${value}`)
    .join('\n');
}
