import type { IncomingMessage } from 'node:http';
import { BoundedMap } from '../../../lib/bounded-map.ts';
import { BrowserSessions, MAX_SESSIONS, sessionIn } from '../../../lib/http/browser-sessions.ts';
import type { OneTimeCodes } from '../../../lib/http/one-time-code.ts';
import { isOwnPage } from '../../../lib/http/origin-check.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { COMMAND, SIGN_IN_PURPOSE } from '../../store/command-key.ts';
import type { Store } from '../../store/store.ts';
import { callerRefused, isActiveKey, type RefusesAddress } from '../authentication.ts';
import { refuse } from '../request.ts';

/** Sessions of browsers at the dashboard, each as one API key or command. In memory only: they end with this process. */
export class DashboardSessions {
  readonly #sessions: BrowserSessions;
  readonly #holders = new BoundedMap<string, string>(MAX_SESSIONS);

  constructor(
    private readonly store: Store,
    private readonly codes: OneTimeCodes,
    private readonly isRefused: RefusesAddress,
    clock: Clock,
  ) {
    this.#sessions = new BrowserSessions({ now: () => clock.now() });
  }

  /** The id of an API key, or {@link COMMAND}; null without a session. @throws {ApiError} 403 for a page of another site */
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

  /** Whether a one-time code is valid; uses it up. */
  useCode(code: string): boolean {
    return this.codes.use(this.store.box.keyFor(SIGN_IN_PURPOSE), code);
  }

  /** Starts a session under a new identifier. The one of the request ends: somebody else may know it. */
  async start(req: IncomingMessage, holder: string): Promise<string> {
    await this.end(req);
    const id = await this.#sessions.start();
    this.#holders.set(id, holder);
    return id;
  }

  async end(req: IncomingMessage): Promise<void> {
    await this.#end(sessionIn(req) ?? '');
  }

  async endAll(holder: string): Promise<void> {
    const ids = [...this.#holders].filter((entry) => entry[1] === holder).map(([id]) => id);
    for (const id of ids) await this.#end(id);
  }

  #holderOf(id: string): string | null {
    const holder = this.#holders.get(id) ?? null;
    return holder === null || holder === COMMAND || isActiveKey(this.store, holder) ? holder : null;
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
