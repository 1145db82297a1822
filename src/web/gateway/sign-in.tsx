import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { Button } from '../ui/button.tsx';
import { TextField } from '../ui/field.tsx';
import { problemOfSignIn, signIn } from './session.ts';
import { gateway } from './strings.ts';

const text = gateway.signIn;

/** Asks for an API key once. */
export function SignIn(): JSX.Element {
  const key = useSignal('');
  const busy = useSignal(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    const api_key = key.value.trim();
    if (busy.value || api_key === '') return;
    busy.value = true;
    await signIn({ api_key });
    busy.value = false;
    key.value = '';
  };
  const problem = problemOfSignIn.value;
  return (
    <main class="gate">
      <h1>{gateway.title}</h1>
      <form class="card" onSubmit={submit}>
        <h2>{text.title}</h2>
        <p>{text.intro}</p>
        <TextField
          label={text.key}
          type="password"
          autocomplete="current-password"
          value={key.value}
          onInput={(value) => {
            key.value = value;
          }}
          hint={text.whereKey}
          problem={problem ? [problem.message, problem.code].filter(Boolean).join(' · ') : undefined}
          autofocus
        />
        <Button kind="primary" type="submit" busy={busy.value}>
          {text.submit}
        </Button>
        <p class="hint">{text.whereLink}</p>
        <pre>{text.command}</pre>
      </form>
    </main>
  );
}
