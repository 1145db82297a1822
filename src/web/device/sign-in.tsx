import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { device } from '../strings.ts';
import { Button } from '../ui/button.tsx';
import { TextField } from '../ui/field.tsx';
import { problemOfSignIn, signIn } from './session.ts';

const text = device.signIn;

/** Asks for the API token once; from then on, a cookie that scripts cannot read stands for it. */
export function SignIn(): JSX.Element {
  const token = useSignal('');
  const busy = useSignal(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy.value || token.value.trim() === '') return;
    busy.value = true;
    await signIn({ token: token.value.trim() });
    busy.value = false;
    token.value = '';
  };
  return (
    <main class="gate">
      <h1>{device.title}</h1>
      <form class="card" onSubmit={submit}>
        <h2>{text.title}</h2>
        <p>{text.intro}</p>
        <TextField
          label={text.token}
          type="password"
          autocomplete="current-password"
          value={token.value}
          onInput={(value) => {
            token.value = value;
          }}
          hint={text.whereToken}
          problem={problemOfSignIn.value?.message}
          autofocus
        />
        <Button kind="primary" type="submit" busy={busy.value}>
          {text.submit}
        </Button>
        <hr />
        <p>{text.whereLink}</p>
        <pre>
          <code>{text.command}</code>
        </pre>
      </form>
    </main>
  );
}

/** Says why nobody can sign in at an address without TLS. */
export function Insecure(): JSX.Element {
  return (
    <main class="gate">
      <h1>{device.title}</h1>
      <div class="card">
        <h2>{text.insecureTitle}</h2>
        <p>{text.insecure}</p>
      </div>
    </main>
  );
}
