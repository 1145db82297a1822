import type { JSX } from 'preact';
import { device } from '../strings.ts';
import { Button } from '../ui/button.tsx';
import { SignOutIcon } from '../ui/icons.tsx';
import { signOut } from './session.ts';

/** Signing out, here and everywhere. */
export function AccountMenu(): JSX.Element {
  return (
    <details class="menu">
      <summary class="button quiet">
        <SignOutIcon />
        {device.menu.signOut}
      </summary>
      <div class="menu-items">
        <Button kind="quiet" onClick={() => void signOut(false)}>
          {device.menu.signOutHere}
        </Button>
        <Button kind="quiet" onClick={() => void signOut(true)}>
          {device.menu.signOutEverywhere}
        </Button>
      </div>
    </details>
  );
}
