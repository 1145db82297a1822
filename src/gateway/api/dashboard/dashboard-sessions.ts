import type { IncomingMessage } from 'node:http';
import { BoundedMap } from '../../../lib/bounded-map.ts';
import { BrowserSessions, MAX_SESSIONS, sessionIn } from '../../../lib/http/browser-sessions.ts';
import type { OneTimeCodes } from '../../../lib/http/one-time-code.ts';
import { isOwnPage } from '../../../lib/http/origin-check.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import type { PeopleProvider } from '../../sign-in/people-provider.ts';
import { COMMAND, useDashboardCode } from '../../store/command-access.ts';
import type { Store } from '../../store/store.ts';
import { callerRefused, isActiveKey, type RefusesAddress } from '../authentication.ts';
import { refuse } from '../request.ts';

/** Who is signed in: an API key, a person, or {@link COMMAND}. */
export interface Holder {
  readonly id: string;
  /** Of a person, in milliseconds since 1970: their session ends with sign-ins that began then. */
  readonly signedInAt?: number;
}

/** Sessions of browsers at the dashboard, each as one {@link Holder}. In memory only: they end with this process. */
export class DashboardSessions {
  readonly #sessions: BrowserSessions;
  readonly #holders = new BoundedMap<string, Holder>(MAX_SESSIONS);

  constructor(
    private readonly store: Store,
    private readonly people: Pick<PeopleProvider, 'isAtDashboard'>,
    private readonly codes: OneTimeCodes,
    private readonly isRefused: RefusesAddress,
    clock: Clock,
  ) {
    this.#sessions = new BrowserSessions({ now: () => clock.now() });
  }

  /** The id of a {@link Holder}; null without a session. @throws {ApiError} 403 for a page of another site */
  holderOf(req: IncomingMessage): string | null {
    const id = sessionIn(req);
    if (id === null) return null;
    const holder = this.#sessions.isOpen(id) ? this.#holderOf(id) : null;
    if (holder === null) {
      this.#end(id);
      return null;
    }
    requireOwnPage(req);
    this.requireAllowed(req);
    return holder;
  }

  /** @throws {ApiError} 403 when an IP restriction refuses the browser's address */
  requireAllowed({ socket }: IncomingMessage): void {
    if (this.isRefused('dashboard', socket)) throw callerRefused(1212, 'dashboard');
  }

  /** A question that may be asked often: whether the session of a request lasts. Asking does not prolong it. */
  lasting(req: IncomingMessage): () => boolean {
    const id = sessionIn(req) ?? '';
    const lasts = this.#sessions.lasting(id);
    return () => lasts() && this.#holderOf(id) !== null && !this.isRefused('dashboard', req.socket);
  }

  /** Who signs in by a one-time code, which it uses up; null: it is not valid. */
  useCode(code: string): Holder | null {
    const used = useDashboardCode(this.store.box, this.codes, code);
    if (used === null) return null;
    return used.personId === null ? { id: COMMAND } : { id: used.personId, signedInAt: used.issuedAt };
  }

  /** Whether somebody may be signed in, still. */
  mayStay({ id, signedInAt }: Holder): boolean {
    if (signedInAt !== undefined) return this.people.isAtDashboard({ subject: id, signedInAt });
    return id === COMMAND || isActiveKey(this.store, id);
  }

  /** Starts a session under a new identifier. The one of the request ends: somebody else may know it. */
  async start(req: IncomingMessage, holder: Holder): Promise<string> {
    await this.end(req);
    const id = await this.#sessions.start();
    this.#holders.set(id, holder);
    return id;
  }

  async end(req: IncomingMessage): Promise<void> {
    await this.#end(sessionIn(req) ?? '');
  }

  async endAll(holderId: string): Promise<void> {
    const ids = [...this.#holders].filter((entry) => entry[1].id === holderId).map(([id]) => id);
    for (const id of ids) await this.#end(id);
  }

  #holderOf(id: string): string | null {
    const holder = this.#holders.get(id);
    return holder !== undefined && this.mayStay(holder) ? holder.id : null;
  }

  async #end(id: string): Promise<void> {
    this.#holders.delete(id);
    await this.#sessions.end(id);
  }
}

/** @throws {ApiError} 403 when a page of another site sent the request */
export function requireOwnPage(req: IncomingMessage): void {
  if (!isOwnPage(req)) throw refuse(403, 207, 'cross-site request refused: pages of other sites may not call it');
}
