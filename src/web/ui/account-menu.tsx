import type { ComponentChildren, JSX } from 'preact';
import { shared } from '../strings.ts';
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
        {shared.signOut}
      </summary>
      <div class="menu-items">
        {children}
        <Button kind="quiet" onClick={() => void session.signOut(false)}>
          {shared.signOutHere}
        </Button>
        <Button kind="quiet" onClick={() => void session.signOut(true)}>
          {shared.signOutEverywhere}
        </Button>
      </div>
    </details>
  );
}
