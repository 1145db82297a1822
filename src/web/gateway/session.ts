import { type ReadonlySignal, signal } from '@preact/signals';
import type { DashboardAccess } from '../../gateway/api/dashboard/dashboard-router.ts';
import { ApiProblem, call } from '../ui/api.ts';

const PATH = '/dashboard/session';
/** The fragment of a one-time link. */
const CODE = /^#code=([\w-]+)$/;
const RETRY_MS = 2_000;

const access = signal<DashboardAccess | null>(null);
const problem = signal<ApiProblem | null>(null);

/** Whether this browser is signed in; null until the gateway has answered. */
export const currentAccess: ReadonlySignal<DashboardAccess | null> = access;
/** Why the last attempt to sign in failed. */
export const problemOfSignIn: ReadonlySignal<ApiProblem | null> = problem;

/** Signs in by the link that opened the page, if one did, and finds out whether the browser is signed in. */
export async function openPage(): Promise<void> {
  window.addEventListener('hashchange', () => void signInByLink());
  await signInByLink();
  while (!(await refreshAccess())) await new Promise((resolve) => window.setTimeout(resolve, RETRY_MS));
}

async function signInByLink(): Promise<void> {
  const code = CODE.exec(window.location.hash)?.[1];
  if (code === undefined) return;
  // Out of the address and the history at once, so that nobody reads it there.
  window.history.replaceState(null, '', window.location.pathname);
  await signIn({ code });
}

/** @returns whether the gateway has answered */
export async function refreshAccess(): Promise<boolean> {
  try {
    access.value = await call<DashboardAccess>('GET', PATH);
    return true;
  } catch {
    return false;
  }
}

/** The key is sent once and kept nowhere: from then on, a cookie that scripts cannot read stands for it. */
export async function signIn(proof: { api_key: string } | { code: string }): Promise<void> {
  problem.value = null;
  try {
    await call('POST', PATH, proof);
    await refreshAccess();
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    problem.value = error;
  }
}

/** @param everywhere ends the sessions of all browsers that signed in with the same key, or by a link */
export async function signOut(everywhere: boolean): Promise<void> {
  await call('DELETE', everywhere ? '/dashboard/sessions' : PATH).catch(() => {});
  await refreshAccess();
}

/** Calls the management API; a browser that is no longer signed in sees how to sign in. */
export async function api<T>(method: string, path: string, body?: unknown): Promise<T> {
  try {
    return await call<T>(method, path, body, { 'service-version': '2' });
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 403) await refreshAccess();
    throw error;
  }
}
