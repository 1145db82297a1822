import { useSignal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import type { ApiProblem } from './api.ts';
import { Button } from './button.tsx';
import { TextField } from './field.tsx';

/** What stands in place of a page that the browser may not see yet. */
export function Gate({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <main class="gate">
      <h1>{title}</h1>
      {children}
    </main>
  );
}

export interface SignInFormProps {
  text: Readonly<Record<'title' | 'intro' | 'credential' | 'where' | 'submit' | 'whereLink' | 'command', string>>;
  /** Why the last attempt failed. */
  problem: ApiProblem | null;
  signIn: (credential: string) => Promise<void>;
}

/** Asks for a credential once, and says how to sign in by link. */
export function SignInForm({ text, problem, signIn }: SignInFormProps): JSX.Element {
  const credential = useSignal('');
  const busy = useSignal(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    const given = credential.value.trim();
    if (busy.value || given === '') return;
    busy.value = true;
    try {
      await signIn(given);
    } finally {
      busy.value = false;
    }
    credential.value = '';
  };
  return (
    <form class="card" onSubmit={submit}>
      <h2>{text.title}</h2>
      <p>{text.intro}</p>
      <TextField
        label={text.credential}
        type="password"
        autocomplete="current-password"
        value={credential.value}
        onInput={(value) => {
          credential.value = value;
        }}
        hint={text.where}
        problem={problem ? [problem.message, problem.code].filter(Boolean).join(' · ') : undefined}
        autofocus
      />
      <Button kind="primary" type="submit" busy={busy.value}>
        {text.submit}
      </Button>
      <hr />
      <p>{text.whereLink}</p>
      <pre>{text.command}</pre>
    </form>
  );
}
