import type { ComponentChildren, JSX } from 'preact';
import type { BrowserSession } from './browser-session.ts';
import { Button } from './button.tsx';
import { SignOutIcon } from './icons.tsx';

/** Signing out, here and everywhere. */
export function AccountMenu({
  session,
  children,
}: {
  session: BrowserSession<{ access: string }>;
  /** What stands above, such as who is signed in. */
  children?: ComponentChildren;
}): JSX.Element {
  return (
    <details class="menu">
      <summary class="button quiet">
        <SignOutIcon />
        Sign out
      </summary>
      <div class="menu-items">
        {children}
        <Button kind="quiet" onClick={() => void session.signOut(false)}>
          Sign out here
        </Button>
        <Button kind="quiet" onClick={() => void session.signOut(true)}>
          Sign out everywhere
        </Button>
      </div>
    </details>
  );
}
