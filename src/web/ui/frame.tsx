import { useSignal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { ApiProblem } from './api.ts';
import type { BrowserSession } from './browser-session.ts';
import { Button } from './button.tsx';
import { setter, TextField } from './field.tsx';
import { SignOutIcon } from './icons.tsx';
import type { LiveConnection } from './live-connection.ts';
import { Badge, Notice } from './notice.tsx';
import { useSubmission } from './submission.ts';
import { ago } from './time-span.ts';

export interface PageHeadProps {
  title: string;
  connection: LiveConnection;
  /** What stands at its end. */
  children: ComponentChildren;
}

/** The head of a page, and for keyboards a way past it to the element `content`. */
export function PageHead({ title, connection, children }: PageHeadProps): JSX.Element {
  return (
    <>
      <button type="button" class="button skip" onClick={() => document.getElementById('content')?.focus()}>
        Skip to content
      </button>
      <header class="top">
        <h1>{title}</h1>
        <LiveBadge connection={connection} />
        {children}
      </header>
    </>
  );
}

/** Says whether what the page shows is current. */
function LiveBadge({ connection }: { connection: LiveConnection }): JSX.Element {
  const state = connection.state.value;
  return (
    <span role="status">
      {state === 'live' && <Badge tone="good">Live</Badge>}
      {state === 'connecting' && <Badge tone="busy">Connecting…</Badge>}
      {state === 'lost' && <Badge tone="warning">Reconnecting…</Badge>}
    </span>
  );
}

/**
 * Says below the header that the page shows old data.
 * @param staleSeconds how old it was when the last event arrived, as the gateway could not ask its database; null: current
 */
export function StaleNotice({
  connection,
  staleSeconds = null,
}: {
  connection: LiveConnection;
  staleSeconds?: number | null;
}): JSX.Element | null {
  const isLost = connection.state.value === 'lost';
  if (!isLost && staleSeconds === null) return null;
  const since = ago(connection.lastEvent.value - (staleSeconds ?? 0) * 1000);
  return (
    <div class="stale" role="alert">
      {isLost
        ? `No connection. Showing what was known ${since}; reconnecting…`
        : `The shared database does not answer. Showing what was known ${since}; changes are rejected.`}
    </div>
  );
}

/** What stands in place of a page that the browser may not see yet. */
export function Gate({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <main class="gate">
      <h1>{title}</h1>
      {children}
    </main>
  );
}

/** Stands over a page whose session has ended, and keeps what it contains, such as a form that is being filled in. */
export function EndedGate({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  // Above the dialog that may be open.
  useEffect(() => element.current?.showModal(), []);
  return (
    <dialog
      ref={element}
      class="ended"
      aria-label={title}
      onCancel={(event) => event.preventDefault()}
      // Browsers let nobody keep a dialog open against a second Escape.
      onClose={() => element.current?.showModal()}
    >
      <Gate title={title}>{children}</Gate>
    </dialog>
  );
}

export interface SignInFormProps {
  text: Readonly<
    Record<'title' | 'intro' | 'credential' | 'where' | 'submit' | 'whereLink' | 'command' | 'ended', string>
  >;
  isEnded: boolean;
  /** Why the last attempt failed. */
  problem: ApiProblem | null;
  signIn: (credential: string) => Promise<void>;
  /** Another way to sign in, which stands first. */
  children?: ComponentChildren;
}

/** Asks for a credential once, and says how to sign in by link. */
export function SignInForm({ text, isEnded, problem, signIn, children }: SignInFormProps): JSX.Element {
  const credential = useSignal('');
  const { busy, run } = useSubmission();
  const submit = (event: Event) => {
    event.preventDefault();
    const given = credential.value.trim();
    if (given === '') return;
    void run(async () => {
      await signIn(given);
      credential.value = '';
    });
  };
  return (
    <form class="card" onSubmit={submit}>
      <h2>{text.title}</h2>
      {isEnded ? <Notice tone="warning">{text.ended}</Notice> : <p>{text.intro}</p>}
      {children}
      <TextField
        label={text.credential}
        type="password"
        autocomplete="current-password"
        value={credential.value}
        onInput={setter(credential)}
        hint={text.where}
        problem={problem ? [problem.message, problem.code].filter(Boolean).join(' · ') : undefined}
        autofocus={children === undefined}
      />
      <Button kind={children === undefined ? 'primary' : 'plain'} type="submit" busy={busy}>
        {text.submit}
      </Button>
      <hr />
      <p>{text.whereLink}</p>
      <pre>{text.command}</pre>
    </form>
  );
}

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
