import type { DashboardAccess } from '../../gateway/api/dashboard/dashboard-router.ts';
import { ApiProblem, call } from '../ui/api.ts';
import { BrowserSession } from '../ui/browser-session.ts';

/** Whether this browser is signed in; signing out everywhere ends all sessions of the same key, or of all links. */
export const session = new BrowserSession<DashboardAccess>('/dashboard/session', '/dashboard/sessions');

/** Calls the management API; a browser that is no longer signed in sees how to sign in. */
export async function api<T>(method: string, path: string, body?: unknown): Promise<T> {
  try {
    return await call<T>(method, path, body, { 'service-version': '2' });
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 403) await session.refresh();
    throw error;
  }
}
