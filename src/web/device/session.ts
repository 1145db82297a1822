import type { PageAccess } from '../../agent/api/page/page-routes.ts';
import { BrowserSession } from '../ui/browser-session.ts';

/** How this browser gets at the API. */
export const session = new BrowserSession<{ access: PageAccess }>('/page/session', '/page/sessions');

/**
 * Asks whether this browser may call the API: it may have been signed out, here or on another device. After the end of its session,
 * it answers when somebody has signed in again.
 */
export async function mayCallApi(): Promise<boolean> {
  await session.refresh();
  await session.readmission();
  const access = session.access.value?.access;
  return access === 'open' || access === 'signed-in';
}
