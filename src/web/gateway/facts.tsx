import type { ComponentChildren, JSX } from 'preact';
import { Ago, Id } from './cells.tsx';
import type { Fact } from './section.ts';

interface Annotated {
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
