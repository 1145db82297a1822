import { useSignal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { CheckIcon, CopyIcon } from './icons.tsx';

export interface ButtonProps {
  children: ComponentChildren;
  onClick?: () => void;
  /** `primary` for the one action of a view, `danger` for what cannot be undone. */
  kind?: 'primary' | 'plain' | 'danger' | 'quiet';
  type?: 'button' | 'submit';
  /** While true, the button shows that work is under way and does nothing. */
  busy?: boolean;
  /** What screen readers say, where the text alone is not enough. */
  label?: string;
}

export function Button({
  children,
  onClick,
  kind = 'plain',
  type = 'button',
  busy = false,
  label,
}: ButtonProps): JSX.Element {
  return (
    <button
      type={type}
      class={`button ${kind}`}
      aria-disabled={busy}
      aria-label={label}
      onClick={(event) => {
        if (busy) event.preventDefault();
        else onClick?.();
      }}
    >
      {busy && <span class="spinner" role="img" aria-label="Working…" />}
      {children}
    </button>
  );
}

/** A link that looks like a button. */
export function ButtonLink({
  children,
  href,
  kind = 'plain',
  label,
  download,
}: Pick<ButtonProps, 'children' | 'kind' | 'label'> & {
  href: string;
  /** Whether it leads to a file to save. */
  download?: boolean;
}): JSX.Element {
  return (
    <a class={`button ${kind}`} href={href} aria-label={label} download={download}>
      {children}
    </a>
  );
}

const SHOWN_MS = 2_000;

/** Copies a text, and says so. With children, they are the button's text; else it is an icon. */
export function CopyButton({
  text,
  what,
  children,
}: {
  text: string;
  what: string;
  children?: ComponentChildren;
}): JSX.Element {
  const result = useSignal<'' | 'copied' | 'failed'>('');
  const copy = async () => {
    result.value = await copyText(text);
    window.setTimeout(() => {
      result.value = '';
    }, SHOWN_MS);
  };
  const isCopied = result.value === 'copied';
  return (
    <button
      type="button"
      class={children === undefined ? 'button quiet icon-only' : 'button'}
      aria-label={children === undefined ? `Copy: ${what}` : undefined}
      title="Copy"
      onClick={copy}
    >
      {isCopied ? <CheckIcon /> : <CopyIcon />}
      {children}
      <span role="status" class={result.value === '' ? 'visually-hidden' : 'toast'}>
        {result.value !== '' && (isCopied ? 'Copied' : 'Copying failed; select the text instead')}
      </span>
    </button>
  );
}

async function copyText(text: string): Promise<'copied' | 'failed'> {
  try {
    // Only secure contexts have a clipboard; plain addresses of a local network have none.
    await navigator.clipboard.writeText(text);
    return 'copied';
  } catch {
    return 'failed';
  }
}
