import { BoundedMap } from '../../lib/bounded-map.ts';
import { messageOf } from '../../lib/errors.ts';
import { FairQueue } from '../../lib/fair-queue.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { clientNetwork, withoutMapping } from '../../lib/network/ip-address.ts';
import { shortText } from '../../lib/short-text.ts';
import { type BucketRate, TokenBucket, TokenBuckets } from '../../lib/time/token-bucket.ts';
import type { SignInEnd } from '../../traffic-policy/ports.ts';
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts';
import type { OnlineEndpoint } from '../endpoints/online-endpoint.ts';
import { ACTIVITY, type Activity, type ActivityType, ALL_TYPES } from '../store/events.ts';
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
/** Events of a kind in memory. */
const MAX_EVENTS = 1_000;
/** Events in one write, which holds up the event loop. */
const BATCH = 200;
/** Characters of a text that an agent or a client has sent. */
const MAX_TEXT = 1_000;

type ActivityObject = Readonly<Record<string, unknown>>;

/** What clients can bring about as often as they like becomes ten events a second; at one endpoint, or by one client, five. */
const SAMPLE: BucketRate = { burst: 20, perMs: 0.01 };
const SAMPLE_OF_ONE: BucketRate = { burst: 10, perMs: 0.005 };
/** Events of a type and an owner: those of a fleet at once, then five a second. */
const OWNER_SAMPLE: BucketRate = { burst: 1_000, perMs: 0.005 };
/** Owners whose omitted events are counted. */
const MAX_OWNERS = 10_000;

/** Chooses the events that are noted, and counts the others. */
class Sample {
  readonly #buckets: TokenBuckets;
  readonly #omitted = new BoundedMap<string, number>(MAX_OWNERS);

  constructor(rate: BucketRate) {
    this.#buckets = new TokenBuckets(rate, MAX_OWNERS);
  }

  /** @returns how many events of the owner were left out since the last; null: this one is, too */
  take(owner: string): number | null {
    const now = performance.now();
    if (!this.#buckets.of(owner, now).tryTake(now)) {
      this.leaveOut(owner);
      return null;
    }
    const omitted = this.#omitted.get(owner) ?? 0;
    this.#omitted.delete(owner);
    return omitted;
  }

  leaveOut(owner: string, times = 1): void {
    this.#omitted.set(owner, (this.#omitted.get(owner) ?? 0) + times);
  }
}

/** Chooses events of one type that are noted, and counts the others together. */
class TypeSample {
  readonly #ofOne = new TokenBuckets(SAMPLE_OF_ONE, MAX_OWNERS);
  readonly #all = new TokenBucket(SAMPLE, performance.now());
  #omitted = 0;

  /** @returns how many were left out since the last; null: this one is, too */
  take(source: string): number | null {
    const now = performance.now();
    if (!this.#ofOne.of(source, now).tryTake(now) || !this.#all.tryTake(now)) {
      this.#omitted += 1;
      return null;
    }
    const omitted = this.#omitted;
    this.#omitted = 0;
    return omitted;
  }
}

interface NotedEvent {
  readonly type: ActivityType;
  readonly created_at: string;
  readonly object: ActivityObject;
  /** In the order in which they were noted. */
  readonly number: number;
  /** Of the limit for its type and owner; null: it has none. */
  readonly limited: string | null;
}

const KINDS = Object.values(ACTIVITY) as readonly (readonly ActivityType[])[];

/**
 * Events that are no changes, on their way to the store: written once a second if wanted; a thousand of each kind at most, whose
 * places and turns their owners share.
 */
export class ActivityLog implements Activity {
  readonly #queues = KINDS.map(() => new FairQueue<NotedEvent>(MAX_EVENTS));
  readonly #queueOf = new Map(KINDS.flatMap((types, kind) => types.map((type) => [type, this.#queues[kind]] as const)));
  #noted = 0;
  /** Events of the write that runs, or has failed and is tried again. */
  #batch: NotedEvent[] = [];
  #subscribed: { types: ReadonlySet<string>; at: number } | null = null;
  #timer: NodeJS.Timeout | undefined;
  /** One write after another: each takes the oldest events out when it is done. */
  #writing: Promise<void> = Promise.resolve();
  readonly #failures = new Repeats();
  readonly #ofOwners = new Sample(OWNER_SAMPLE);
  readonly #ofTypes = new Map<ActivityType, TypeSample>();
  #lostAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly store: Pick<Store, 'database' | 'eventDeliveries' | 'eventSubscriptions' | 'now'>,
    private readonly log: Log,
  ) {}

  note(type: ActivityType, describe: () => ActivityObject, owner?: string): void {
    if (this.#isWanted(type)) this.#add(type, describe, owner);
  }

  sample(type: ActivityType, source: string, describe: () => ActivityObject): void {
    const sample = this.#ofTypes.get(type) ?? new TypeSample();
    this.#ofTypes.set(type, sample);
    const omitted = sample.take(source);
    if (omitted !== null) this.note(type, () => ({ ...describe(), omitted }));
  }

  #add(type: ActivityType, describe: () => ActivityObject, owner?: string): void {
    const limited = owner === undefined ? null : `${type} ${owner}`;
    const omitted = limited === null ? undefined : this.#ofOwners.take(limited);
    if (omitted === null) return;
    const object = shortened({ omitted, ...describe() });
    const event = { type, created_at: this.store.now(), object, number: ++this.#noted, limited };
    const lost = this.#queueOf.get(type)?.add(owner ?? type, event);
    if (lost) this.#lose(lost);
    this.#writeSoon();
  }

  #lose({ limited, object: { omitted } }: NotedEvent): void {
    if (limited !== null) this.#ofOwners.leaveOut(limited, 1 + Number(omitted));
    this.#lostAt = performance.now();
    this.#report('too many events a second');
  }

  /** When an event was lost for the last time, in milliseconds of `performance.now()`. */
  get lostAt(): number {
    return this.#lostAt;
  }

  get #waiting(): number {
    return this.#queues.reduce((sum, { size }) => sum + size, this.#batch.length);
  }

  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    for (let left = Number.POSITIVE_INFINITY; this.#waiting < left; ) {
      left = this.#waiting;
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
      if (this.#waiting > 0) this.#writeSoon();
    }, WRITE_MS).unref();
  }

  #write(): Promise<void> {
    this.#writing = this.#writing.then(() => this.#writeBatch());
    return this.#writing;
  }

  async #writeBatch(): Promise<void> {
    if (this.#batch.length === 0) this.#batch = this.#nextBatch();
    const events = this.#batch.map(({ type, created_at, object }) => ({ type, created_at, object }));
    if (events.length === 0) return;
    try {
      await this.store.database.write(() => this.store.eventDeliveries.addActivity(events), null);
      this.#batch = [];
    } catch (error) {
      this.#report(messageOf(error));
    }
  }

  /** The kinds take turns. */
  #nextBatch(): NotedEvent[] {
    const batch: NotedEvent[] = [];
    const { length } = this.#queues;
    for (let [turn, empty] = [0, 0]; batch.length < BATCH && empty < length; turn++) {
      const event = this.#queues[turn % length]?.take();
      if (event) batch.push(event);
      empty = event ? 0 : empty + 1;
    }
    return batch.sort((one, other) => one.number - other.number);
  }

  #report(reason: string): void {
    const times = this.#failures.timesDue(reason);
    if (times !== null) this.log.warn({ reason, times }, 'events that are no changes not recorded');
  }
}

function shortened(object: ActivityObject): ActivityObject {
  const short = (value: unknown) => (typeof value === 'string' ? shortText(value, MAX_TEXT) : value);
  return Object.fromEntries(Object.entries(object).map(([name, value]) => [name, short(value)]));
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
  sessions.on('added', (session) =>
    activity.note('agent_session_start.v0', () => shown(session), session.credential.id),
  );
  sessions.on('removed', (session) => {
    const stopped_at = timestamp(Date.now());
    activity.note('agent_session_stop.v0', () => ({ ...shown(session), stopped_at }), session.credential.id);
  });
}

/** Endpoints of agents that go online and offline. Cloud endpoints come and go as changes. */
export function noteEndpoints(activity: Activity, endpoints: EndpointRegistry): void {
  const note = (type: ActivityType) => (endpoint: OnlineEndpoint) => {
    if (endpoint.isCloud) return;
    const { publicId: id, url, protocol: proto, owner, forwardsTo: upstream_url } = endpoint;
    const { id: session_id, credential } = owner;
    const describe = () => ({
      ...{ id, url, proto, upstream_url, session_id },
      ...{ credential_id: credential.id, owner_id: credential.ownerId },
    });
    activity.note(type, describe, credential.id);
  };
  endpoints.on('added', note('endpoint_start.v0'));
  endpoints.on('removed', note('endpoint_stop.v0'));
}

/** Somebody could not sign in to the dashboard. */
export function noteDashboardRefusal(
  activity: Activity,
  address: string | undefined,
  { code: error_code }: { readonly code: string },
): void {
  const describe = () => ({ client_ip: withoutMapping(address ?? ''), error_code });
  activity.sample('dashboard_sign_in_failed.v0', clientNetwork(address ?? ''), describe);
}

/** Somebody has signed in at an endpoint, or could not. */
export function noteSignIn(
  activity: Activity,
  { host, issuer, clientIp: client_ip, subject, error: error_code }: SignInEnd,
): void {
  const common = { host, issuer, client_ip };
  if (error_code === null) activity.note('sign_in_succeeded.v0', () => ({ ...common, subject }), host);
  else activity.sample('sign_in_failed.v0', host, () => ({ ...common, error_code }));
}
