import { type ReadonlySignal, signal } from '@preact/signals';
import type { PageAccess } from '../../agent/api/page/sign-in-router.ts';
import { ApiProblem, call } from '../ui/api.ts';

/** `unknown` until the agent has answered. */
export type Access = PageAccess | 'unknown';

const access = signal<Access>('unknown');
const signInProblem = signal<ApiProblem | null>(null);

/** How this browser gets at the API. */
export const currentAccess: ReadonlySignal<Access> = access;
/** Why the last attempt to sign in failed. */
export const problemOfSignIn: ReadonlySignal<ApiProblem | null> = signInProblem;

/** The fragment of a one-time link. */
const CODE = /^#code=([\w-]+)$/;
const RETRY_MS = 2_000;

/** Signs in by the link that opened the page, if one did, and finds out what the browser may do. */
export async function openPage(): Promise<void> {
  const code = takeCode();
  window.addEventListener('hashchange', () => {
    const later = takeCode();
    if (later !== null) void signIn({ code: later });
  });
  if (code !== null) await signIn({ code });
  while (!(await refreshAccess())) await new Promise((resolve) => window.setTimeout(resolve, RETRY_MS));
}

/** Takes the code out of the address and the history at once, so that nobody reads it there. */
function takeCode(): string | null {
  const code = CODE.exec(window.location.hash)?.[1] ?? null;
  if (code !== null) window.history.replaceState(null, '', window.location.pathname);
  return code;
}

/** @returns whether the agent has answered */
export async function refreshAccess(): Promise<boolean> {
  try {
    access.value = (await call<{ access: PageAccess }>('GET', '/page/session')).access;
    return true;
  } catch {
    return false;
  }
}

export async function signIn(proof: { token: string } | { code: string }): Promise<void> {
  signInProblem.value = null;
  try {
    await call('POST', '/page/session', proof);
    await refreshAccess();
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    // Where no one needs to sign in, a link that does it is of no consequence.
    if (error.status !== 405) signInProblem.value = error;
  }
}

/** @param everywhere ends the sessions of all browsers */
export async function signOut(everywhere: boolean): Promise<void> {
  await call('DELETE', everywhere ? '/page/sessions' : '/page/session').catch(() => {});
  await refreshAccess();
}
