import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { shared } from '../strings.ts';
import { CloseIcon } from './icons.tsx';

export interface DialogProps {
  title: string;
  children: ComponentChildren;
  onClose: () => void;
  wide?: boolean;
  /** Whether a field in it takes the focus; by default, the title does. */
  hasFocusField?: boolean;
}

/** A modal dialog: keeps the focus inside, closes with Escape, and returns the focus. */
export function Dialog({ title, children, onClose, wide = false, hasFocusField = false }: DialogProps): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    const dialog = element.current;
    dialog?.showModal();
    // What is outside of an open dialog takes no focus, and the next dialog may be here before this one has left the page.
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={wide ? 'dialog wide' : 'dialog'}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <header class="dialog-head">
        <h2 id={id} tabindex={-1} autofocus={!hasFocusField}>
          {title}
        </h2>
        <button type="button" class="button quiet icon-only" aria-label={shared.close} onClick={onClose}>
          <CloseIcon />
        </button>
      </header>
      <div class="dialog-body">{children}</div>
    </dialog>
  );
}
