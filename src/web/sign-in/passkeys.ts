/** Passkeys at the gateway's page for sign-in. All else of that page works without scripts. */

const form = document.querySelector<HTMLFormElement>('form[data-passkey]');
// Older browsers cannot read the options, and have passwords.
if (form !== null && typeof globalThis.PublicKeyCredential?.parseRequestOptionsFromJSON === 'function') {
  form.hidden = false;
  form.querySelector('button')?.addEventListener('click', () => void use(form));
}

async function use(form: HTMLFormElement): Promise<void> {
  const problem = form.querySelector<HTMLElement>('[role=alert]');
  if (problem !== null) problem.hidden = true;
  try {
    const credential = await credentialFor(form.dataset);
    const response = form.querySelector<HTMLInputElement>('input[name=response]');
    if (!(credential instanceof PublicKeyCredential) || response === null) return;
    response.value = JSON.stringify(credential.toJSON());
    form.submit();
  } catch {
    // Browsers do not say more: the person has declined, or there is no passkey.
    if (problem !== null) problem.hidden = false;
  }
}

function credentialFor({ passkey, options = '{}' }: DOMStringMap): Promise<Credential | null> {
  return passkey === 'create'
    ? navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(JSON.parse(options)) })
    : navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(JSON.parse(options)) });
}
