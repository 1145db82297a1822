import type { JSX } from 'preact';
import { UnicodeForm } from '../ui/address.tsx';
import { CopyButton } from '../ui/copy-button.tsx';
import { span, spanSince } from '../ui/time-span.ts';

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
      {below && <span class="below">{below}</span>}
      <UnicodeForm of={unicode} />
    </>
  );
}

/** An id to copy. */
export function Id({ id }: { id: string }): JSX.Element {
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
