import type { PageAccess } from '../../agent/api/page/sign-in-router.ts';
import { BrowserSession } from '../ui/browser-session.ts';

/** How this browser gets at the API. */
export const session = new BrowserSession<{ access: PageAccess }>('/page/session', '/page/sessions');
