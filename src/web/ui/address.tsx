import type { JSX } from 'preact';
import { unicodeForm } from './unicode-form.ts';

/**
 * A link for what browsers open, else text; a name in Unicode stands below its ASCII form. Others chose the URL, so its scheme is
 * checked.
 */
export function Address({ url }: { url: string }): JSX.Element {
  if (!/^https?:\/\//.test(url)) {
    return (
      <p class="url">
        {url}
        <UnicodeForm of={url} />
      </p>
    );
  }
  return (
    <p>
      <a class="url" href={url} target="_blank" rel="noopener noreferrer">
        {url}
        <span class="visually-hidden"> (opens in a new tab)</span>
      </a>
      <UnicodeForm of={url} />
    </p>
  );
}

/** What the `xn--` labels of a hostname or URL mean. Beside the ASCII form, never in its place: Unicode has lookalikes. */
export function UnicodeForm({ of }: { of: string }): JSX.Element | null {
  const form = unicodeForm(of);
  return form === null ? null : <bdi class="below">{form}</bdi>;
}
