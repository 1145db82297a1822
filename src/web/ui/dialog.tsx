import { useSignal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { CloseIcon } from './icons.tsx';

/** Moves the focus to a heading, so that screen readers say where one is. */
export function focusHeading(heading: HTMLElement | null): void {
  if (heading) heading.tabIndex = -1;
  heading?.focus({ preventScroll: true });
}

export interface DialogProps {
  title: string;
  children: ComponentChildren;
  onClose: () => void;
  wide?: boolean;
  /** Whether a field in it takes the focus; by default, the title does. */
  hasFocusField?: boolean;
}

/**
 * A modal dialog: keeps the focus inside, and returns it. It closes with Escape until somebody has entered something, which would
 * be lost. If what opened it is gone, such as the row of
 * a deleted item, the heading of its section takes the focus.
 */
export function Dialog({ title, children, onClose, wide = false, hasFocusField = false }: DialogProps): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  const isFilled = useRef(false);
  const isKept = useSignal(false);
  useEffect(() => {
    isFilled.current = false;
    isKept.value = false;
  }, [title]);
  useEffect(() => {
    const before = document.activeElement;
    const heading = before?.closest('section')?.querySelector<HTMLElement>('h2, h3');
    const dialog = element.current;
    dialog?.showModal();
    // What is outside of an open dialog takes no focus, and the next dialog may be here before this one has left the page.
    return () => {
      isFilled.current = false;
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
      // The row leaves the page together with this dialog, or a moment before.
      window.requestAnimationFrame(() => {
        if (heading && document.activeElement === document.body) focusHeading(heading);
      });
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={wide ? 'dialog wide' : 'dialog'}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        isKept.value = isFilled.current;
        if (!isFilled.current) onClose();
      }}
      // Browsers let nobody keep a dialog open against a second Escape.
      onClose={() => isFilled.current && element.current?.isConnected && element.current.showModal()}
      onInput={() => {
        isFilled.current = true;
      }}
    >
      <header class="dialog-head">
        <h2 id={id} tabindex={-1} autofocus={!hasFocusField}>
          {title}
        </h2>
        <button type="button" class="button quiet icon-only" aria-label="Close" onClick={onClose}>
          <CloseIcon />
        </button>
      </header>
      <div class="dialog-body">
        {isKept.value && (
          <p class="hint" role="status">
            Escape does not close this form, as what you have entered would be lost. Save it, or close it with the
            button.
          </p>
        )}
        {children}
      </div>
    </dialog>
  );
}
