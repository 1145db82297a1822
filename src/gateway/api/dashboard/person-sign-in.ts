import type { Request, Response } from 'express';
import { ATTEMPT_MS, beginAttempt, returnedAttempt, UsedStates } from '../../../traffic-policy/sign-in/attempt.ts';
import type { Attempt } from '../../../traffic-policy/sign-in/identity-provider.ts';
import {
  type Cookies,
  cookieNames,
  forgetAttempt,
  keepAttempt,
  takeOwnCookies,
} from '../../../traffic-policy/sign-in/sign-in-cookies.ts';
import { CookieSeal } from '../../sign-in/cookie-seal.ts';
import type { PeopleProvider } from '../../sign-in/people-provider.ts';
import { requestQuery } from '../request.ts';
import type { Holder } from './dashboard-sessions.ts';

/** Where the page for sign-in sends browsers back to. */
export const CALLBACK = '/dashboard/sign-in/callback';

const NAMES = cookieNames('dashboard', null);
const OWNER = 'dashboard';

/** Signs people of the gateway in to the dashboard, as endpoints do: at the gateway's page, which sends them back with a code. */
export class DashboardSignIn {
  readonly #attempts: CookieSeal<Attempt>;
  readonly #used = new UsedStates();

  /** @param host of the dashboard; `wallClock`: milliseconds since 1970 */
  constructor(
    private readonly people: Pick<PeopleProvider, 'dashboardUrl' | 'redeemForDashboard'>,
    keyFor: (purpose: string) => string,
    private readonly host: string,
    private readonly wallClock: () => number = Date.now,
  ) {
    this.#attempts = new CookieSeal('dashboard attempt', keyFor, 0, wallClock);
  }

  /** @param view to return to @returns the URL of the page for sign-in */
  begin(req: Request, res: Response, view: string): string {
    const { id, attempt } = beginAttempt(view, this.wallClock());
    const sealed = this.#attempts.seal(attempt, OWNER);
    setCookies(res, keepAttempt(id, sealed, ATTEMPT_MS / 1000, cookiesOf(req), NAMES));
    return this.people.dashboardUrl(this.#originOf(req) + CALLBACK, attempt);
  }

  /** @throws {SignInFailed} when nobody has signed in, or somebody who may not use the dashboard */
  finish(req: Request, res: Response): { holder: Holder; view: string } {
    const callback = new URL(`${this.#originOf(req)}${CALLBACK}?${requestQuery(req)}`);
    const { id, attempt } = returnedAttempt({
      state: callback.searchParams.get('state'),
      cookies: cookiesOf(req),
      names: NAMES,
      open: (sealed) => this.#attempts.open(sealed, OWNER),
      used: this.#used,
      now: this.wallClock(),
    });
    setCookies(res, forgetAttempt(id, NAMES));
    const { subject, signedInAt } = this.people.redeemForDashboard(callback, attempt);
    return { holder: { id: subject, signedInAt }, view: attempt.target };
  }

  /** On the port by which the browser has reached the gateway; the host is the dashboard's, whatever the request says. */
  #originOf({ headers }: Request): string {
    const port = /:(\d{1,5})$/.exec(headers.host ?? '')?.[1] ?? '';
    const url = new URL(`https://${this.host}`);
    url.port = port;
    return url.origin;
  }
}

function cookiesOf({ rawHeaders }: Request): Cookies {
  return takeOwnCookies([...rawHeaders]);
}

/** @param headers names and values, one after the other */
function setCookies(res: Response, headers: readonly string[]): void {
  for (let at = 0; at < headers.length; at += 2) res.append(headers[at] ?? '', headers[at + 1] ?? '');
}
