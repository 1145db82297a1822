import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import type { OnlineEndpoint } from '../endpoints/endpoint.ts';
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts';
import { type Activity, type ActivityType, ALL_TYPES } from '../store/events.ts';
import { type Store, timestamp } from '../store/store.ts';

/** What events say of a session of an agent. */
interface AgentSession {
  readonly id: string;
  readonly address: string;
  readonly startedAt: Date;
  readonly agent: { readonly program: string; readonly os: string; readonly metadata: string };
  readonly credential: { readonly id: string; readonly ownerId: string | null };
}

/** How long events stay in memory, which a killed gateway forgets; and subscriptions that it knows. */
const WRITE_MS = 1_000;
/** Events in memory. */
const MAX_EVENTS = 1_000;
/** Events in one write, which holds up the event loop. */
const BATCH = 200;

type ActivityObject = Readonly<Record<string, unknown>>;

/**
 * Events that are no changes, on their way to the store: they are written once a second, and only if a destination is
 * subscribed to them. Never more than a thousand are held.
 */
export class ActivityLog implements Activity {
  #events: { type: ActivityType; created_at: string; object: ActivityObject }[] = [];
  #subscribed: { types: ReadonlySet<string>; at: number } | null = null;
  #timer: NodeJS.Timeout | undefined;
  readonly #failures = new Repeats();

  constructor(
    private readonly store: Pick<Store, 'database' | 'eventDeliveries' | 'eventSubscriptions' | 'now'>,
    private readonly log: Log,
  ) {}

  note(type: ActivityType, describe: () => ActivityObject): void {
    if (!this.#isWanted(type)) return;
    if (this.#events.length >= MAX_EVENTS) {
      this.#report('too many events a second');
      return;
    }
    this.#events.push({ type, created_at: this.store.now(), object: describe() });
    this.#writeSoon();
  }

  /** Writes what is left. */
  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    for (let left = Number.POSITIVE_INFINITY; this.#events.length < left; ) {
      left = this.#events.length;
      await this.#write();
    }
  }

  #isWanted(type: ActivityType): boolean {
    const now = performance.now();
    if (this.#subscribed === null || now - this.#subscribed.at > WRITE_MS) {
      const inUse = this.store.eventSubscriptions.where('destination_ids <> ?', ['[]']);
      this.#subscribed = { types: new Set(inUse.flatMap(({ sources }) => sources)), at: now };
    }
    const { types } = this.#subscribed;
    return types.has(type) || types.has(ALL_TYPES);
  }

  #writeSoon(): void {
    this.#timer ??= setTimeout(async () => {
      await this.#write();
      this.#timer = undefined;
      if (this.#events.length > 0) this.#writeSoon();
    }, WRITE_MS).unref();
  }

  async #write(): Promise<void> {
    const events = this.#events.slice(0, BATCH);
    if (events.length === 0) return;
    try {
      await this.store.database.write(() => this.store.eventDeliveries.addActivity(events), null);
      this.#events.splice(0, events.length);
    } catch (error) {
      this.#report(messageOf(error));
    }
  }

  #report(reason: string): void {
    const times = this.#failures.timesDue(reason);
    if (times !== null) this.log.warn({ reason, times }, 'events of sessions, endpoints or certificates not recorded');
  }
}

/** Sessions of agents that begin and end, with the members that ngrok's events have. */
export function noteSessions(
  activity: Activity,
  sessions: { on(event: 'added' | 'removed', listener: (session: AgentSession) => void): unknown },
): void {
  const shown = ({ id, address, startedAt, agent, credential }: AgentSession) => ({
    ...{ id, agent_ip: address, user_agent: agent.program, os: agent.os, metadata: agent.metadata },
    ...{ started_at: timestamp(startedAt.getTime()), credential_id: credential.id, owner_id: credential.ownerId },
  });
  sessions.on('added', (session) => activity.note('agent_session_start.v0', () => shown(session)));
  sessions.on('removed', (session) =>
    activity.note('agent_session_stop.v0', () => ({ ...shown(session), stopped_at: timestamp(Date.now()) })),
  );
}

/** Endpoints of agents that go online and offline. Cloud endpoints come and go as changes. */
export function noteEndpoints(activity: Activity, endpoints: EndpointRegistry): void {
  const note = (type: ActivityType) => (endpoint: OnlineEndpoint) => {
    if (endpoint.isCloud) return;
    const { publicId: id, url, protocol: proto, owner, forwardsTo: upstream_url } = endpoint;
    const { id: session_id, credential } = owner;
    activity.note(type, () => ({
      ...{ id, url, proto, upstream_url, session_id },
      ...{ credential_id: credential.id, owner_id: credential.ownerId },
    }));
  };
  endpoints.on('added', note('endpoint_start.v0'));
  endpoints.on('removed', note('endpoint_stop.v0'));
}
