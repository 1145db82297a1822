import { useSignal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { CheckIcon, CopyIcon } from './icons.tsx';

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
