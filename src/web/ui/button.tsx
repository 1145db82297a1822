import type { ComponentChildren, JSX } from 'preact';

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
