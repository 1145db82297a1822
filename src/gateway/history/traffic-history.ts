import { SLOT_SECONDS, type SlotAway, type TimesAway } from '../../agent-protocol/messages.ts';
import { messageOf } from '../../lib/errors.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { runInTurns } from '../../lib/stepwise.ts';
import { TokenBuckets } from '../../lib/time/token-bucket.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts';
import type { LabeledUpstream, Labels, OnlineEndpoint } from '../endpoints/online-endpoint.ts';
import type { SessionEnd } from '../endpoints/session-end.ts';
import type { EndpointTraffic } from '../endpoints/traffic-counts.ts';
import type { HistoryElsewhere, HistoryQuestion } from './history-elsewhere.ts';
import type { HistoryFile, HistorySubject, NewAway, NewHistoryRow, NewRun } from './history-file.ts';
import {
  briefParts,
  type HistoryPart,
  type HistoryRange,
  type HistoryStep,
  historyPart,
  longestOutage,
  type Outage,
  pointsOf,
  type SubjectName,
} from './history-points.ts';
import { Values } from './history-values.ts';
import { type TopCounts, TopLists, topOf } from './top-lists.ts';

const MINUTE_MS = 60_000;
/** A shorter break is one minute's reconnect, and no break: an agent that flaps would fill the disk. */
const BREAK_SECONDS = 60;
/** New names of an authtoken: those of a fleet at once, then a hundred an hour. Further ones have no history. */
const NEW_NAMES = { burst: 1_000, perMs: 100 / 3_600_000 };
const MAX_OWNERS = 10_000;
/** Rows that wait while the disk cannot be written. */
const MAX_WAITING = 50_000;
/** What devices say of a time that is longer ago is not believed. */
const DAY_S = 86_400;
/** Pages that are looked at do not write more often. */
const FRESH_MS = 5_000;

interface AgentSession {
  readonly credential: { readonly id: string };
  readonly endedBy: SessionEnd;
}

interface Sessions {
  sessions: Iterable<AgentSession>;
  on(event: 'added' | 'removed', listener: (session: AgentSession) => void): unknown;
  on(event: 'away', listener: (session: AgentSession, times: TimesAway) => void): unknown;
  on(event: 'refused', listener: (device: string | null) => void): unknown;
}

/** What comes and goes: an endpoint's URL, or a device, by the authtoken that brings it. */
class Presence {
  /** What it has a history as; null: it has none. Undefined: nobody has looked yet. */
  of: HistorySubject | null | undefined;
  reconnects = 0;
  /** Of sessions, since somebody looked; by reason. */
  ends: Map<SessionEnd, number> | null = null;
  #online = 0;
  #run: { since: number; until: number | null } | null = null;
  #isChanged = false;
  readonly #ended: { since: number; until: number }[] = [];

  constructor(
    readonly kind: HistorySubject['kind'],
    readonly key: string,
    readonly credentialId: string,
  ) {}

  /** @param now in whole seconds since 1970 */
  came(now: number): void {
    this.#online += 1;
    if (this.#online > 1) return;
    const before = this.#run;
    if (before !== null) this.reconnects += 1;
    if (before?.until != null && now - before.until < BREAK_SECONDS) before.until = null;
    else {
      if (before?.until != null && this.#isChanged) this.#ended.push({ since: before.since, until: before.until });
      this.#run = { since: now, until: null };
    }
    this.#isChanged = true;
  }

  went(now: number): void {
    this.#online -= 1;
    if (this.#online === 0) this.end(now);
  }

  end(now: number): void {
    if (this.#run === null || this.#run.until !== null) return;
    this.#run.until = Math.max(this.#run.since, now);
    this.#isChanged = true;
  }

  countEnd(end: SessionEnd, times = 1): void {
    this.ends ??= new Map();
    this.ends.set(end, (this.ends.get(end) ?? 0) + times);
  }

  /** Sessions or endpoints. */
  get online(): number {
    return this.#online;
  }

  /** The runs that are new or have changed since the last call. */
  takeRuns(): { since: number; until: number | null }[] {
    const taken: { since: number; until: number | null }[] = this.#ended.splice(0);
    if (this.#run !== null && this.#isChanged) taken.push({ ...this.#run });
    this.#isChanged = false;
    return taken;
  }

  /** Whether it has been away for so long that its next run is another one. */
  isGone(now: number): boolean {
    // Of a device that was refused.
    if (this.#run === null) return this.ends === null;
    const { until } = this.#run;
    return until !== null && now - until >= BREAK_SECONDS;
  }
}

/** An endpoint that is online, or has ended in this minute. */
interface Followed {
  readonly presence: Presence;
  readonly traffic: EndpointTraffic;
  before: Values;
  isOver: boolean;
}

/**
 * Notes what happens, by the minute: it reads the counters of all endpoints once a minute, so that counting itself stays an
 * addition.
 */
export class TrafficHistory {
  readonly #followed = new Map<object, Followed>();
  readonly #presences = new Map<string, Presence>();
  readonly #own: Presence;
  readonly #newNames = new TokenBuckets(NEW_NAMES, MAX_OWNERS);
  readonly #failures = new Repeats();
  #rows: NewHistoryRow[] = [];
  #runs: NewRun[] = [];
  /** By device and time: what is said again replaces what waits. */
  #away = new Map<string, NewAway>();
  #top: TopLists | null = null;
  #cancel: (() => void) | null = null;
  #writtenAt = Number.NEGATIVE_INFINITY;
  #writing: Promise<void> = Promise.resolve();
  /** When the minute began that is counted, in milliseconds since 1970. */
  #since: number;

  constructor(
    private readonly context: Pick<GatewayContext, 'store' | 'clock' | 'log'>,
    private readonly own: {
      readonly file: HistoryFile;
      /** What this gateway is called among several. */
      readonly node: string;
      /** What other gateways have; left out: there are none. */
      readonly elsewhere?: Pick<HistoryElsewhere, 'read' | 'readBriefly' | 'top' | 'take'> | undefined;
      /** Milliseconds since 1970. */
      readonly time?: () => number;
    },
  ) {
    this.#since = this.#time();
    this.#own = new Presence('gateway', own.node, '');
  }

  async start(): Promise<void> {
    await this.#attempt(() => this.own.file.endRuns());
    this.#own.came(this.#now());
    this.#own.of = { kind: 'gateway', key: this.own.node, device: '' };
    this.#presences.set('gateway', this.#own);
    this.#next();
  }

  /** Follows what is online at this gateway, now and later. */
  follow(endpoints: EndpointRegistry, sessions: Sessions): void {
    this.#top = new TopLists({ endpoints, clock: this.context.clock });
    const followEndpoint = (endpoint: OnlineEndpoint) => this.#follow(endpoint, endpoint.url);
    const followLabeled = (tunnel: LabeledUpstream) => this.#follow(tunnel, labelText(tunnel.labels));
    for (const endpoint of endpoints.list()) followEndpoint(endpoint);
    endpoints.on('added', followEndpoint);
    endpoints.on('retired', (endpoint) => this.#ended(endpoint));
    endpoints.on('removed', (endpoint) => this.#ended(endpoint));
    endpoints.on('labeled', followLabeled);
    endpoints.on('unlabeled', (tunnel) => this.#ended(tunnel));
    const deviceOf = ({ credential }: AgentSession) => this.#presence('device', '', credential.id);
    for (const session of sessions.sessions) deviceOf(session).came(this.#now());
    sessions.on('added', (session) => deviceOf(session).came(this.#now()));
    sessions.on('removed', (session) => {
      const device = deviceOf(session);
      device.went(this.#now());
      for (const each of [device, this.#own]) each.countEnd(session.endedBy);
    });
    sessions.on('refused', (device) => {
      this.#own.countEnd('refused');
      // One that is not known has no history.
      if (device !== null) this.#refused(device);
    });
    sessions.on('away', ({ credential }, times) => this.wasAway(credential.id, times));
  }

  /** The history of something until now, or until some seconds ago. @param range begins at a whole step @throws the engine's error */
  async read(of: SubjectName, range: HistoryRange): Promise<{ steps: HistoryStep[]; longestOutage: Outage | null }> {
    const [here, elsewhere] = await Promise.all([
      this.here({ of: [of], range, isBrief: false }),
      this.own.elsewhere?.read(of, range) ?? [],
    ]);
    const parts = [...here, ...elsewhere];
    const now = this.#now();
    return { steps: pointsOf(parts, range, now), longestOutage: longestOutage(parts, range, now) };
  }

  /**
   * Requests and times online of many, in the same order. Of gateways that do not answer, it has what they have passed on.
   * @param range in steps of hours, within the last 30 days
   */
  async readBriefly(of: readonly SubjectName[], range: HistoryRange): Promise<HistoryStep[][]> {
    const question: HistoryQuestion = { of, range, isBrief: true };
    const [here, elsewhere = []] = await Promise.all([this.here(question), this.own.elsewhere?.readBriefly(question)]);
    const now = this.#now();
    return here.map((part, place) => pointsOf([part, ...(elsewhere[place] ?? [])], range, now));
  }

  /** What requests to an endpoint have most of, by its URL: since somebody looks, and of the last hour at most. */
  async top(url: string): Promise<TopCounts> {
    const elsewhere = (await this.own.elsewhere?.top(url)) ?? [];
    return topOf([...this.topHere(url), ...elsewhere]);
  }

  /** The same, of this gateway alone. */
  topHere(url: string): TopCounts[] {
    return this.#top === null ? [] : [this.#top.read(url)];
  }

  /** The devices that have bound an endpoint here, by its URL or by the hostname in it. */
  devicesOf(key: string): string[] {
    return this.own.file.devicesOf(key);
  }

  /** Takes what a device says of its last day. Its clock may be wrong: what counts is how long ago it was. */
  wasAway(credentialId: string, { Now, Slots }: TimesAway): void {
    const device = this.context.store.devices.byCredential(credentialId)?.id;
    if (device === undefined) return;
    const now = this.#now();
    for (const slot of Slots) {
      const away = awayIn(slot, now - Now, now);
      // While the disk cannot be written, later ones are lost.
      if (away !== null && this.#away.size < MAX_WAITING) this.#away.set(`${device} ${away.at}`, { device, ...away });
    }
  }

  /** When it begins, in whole minutes since 1970. */
  get begun(): number {
    return this.own.file.begun;
  }

  /** What this gateway has of them, in the same order. */
  async here({ of, range, isBrief }: HistoryQuestion): Promise<HistoryPart[]> {
    if (this.context.clock.now() - this.#writtenAt >= FRESH_MS) {
      this.#count();
      void this.#write();
    }
    await this.#writing;
    const { file } = this.own;
    return isBrief ? runInTurns(briefParts(file, of, range)) : of.map((each) => historyPart(file, each, range));
  }

  /** Everything ends now, for the history. */
  async stop(): Promise<void> {
    this.#cancel?.();
    this.#top?.stop();
    for (const device of this.#presences.values()) {
      if (device.kind !== 'device' || device.online === 0) continue;
      for (const each of [device, this.#own]) each.countEnd('gateway', device.online);
    }
    this.#count();
    for (const presence of this.#presences.values()) presence.end(this.#now());
    this.#takeRuns();
    await this.#write();
    await this.own.file.close();
  }

  #refused(device: string): void {
    const presence = this.#presence('device', device, '');
    presence.of = { kind: 'device', key: device, device };
    presence.countEnd('refused');
  }

  #follow(endpoint: Pick<OnlineEndpoint, 'traffic'> & { owner: { credential: { id: string } } }, key: string): void {
    const presence = this.#presence('endpoint', key, endpoint.owner.credential.id);
    presence.came(this.#now());
    this.#followed.set(endpoint, { presence, traffic: endpoint.traffic, before: new Values(), isOver: false });
  }

  /** It still counts until the minute is over: what it carries may end later. */
  #ended(endpoint: object): void {
    const followed = this.#followed.get(endpoint);
    if (followed === undefined || followed.isOver) return;
    followed.isOver = true;
    followed.presence.went(this.#now());
  }

  #presence(kind: HistorySubject['kind'], key: string, credentialId: string): Presence {
    const name = `${kind} ${credentialId} ${key}`;
    const presence = this.#presences.get(name) ?? new Presence(kind, key, credentialId);
    this.#presences.set(name, presence);
    return presence;
  }

  #next(): void {
    this.#cancel = this.context.clock.after(MINUTE_MS - (this.#time() % MINUTE_MS), () => {
      this.#count();
      void this.#write().then(() => this.own.elsewhere?.take(this.own.file));
      this.#next();
    });
  }

  /** Takes what was counted since the last time. */
  #count(): void {
    const at = Math.floor(this.#since / MINUTE_MS);
    this.#since = this.#time();
    const all = new Values();
    for (const [endpoint, followed] of this.#followed) {
      const values = newValues(followed);
      if (followed.isOver) this.#followed.delete(endpoint);
      if (values === null) continue;
      all.add(values);
      this.#add(followed.presence, at, values);
    }
    if (!all.isZero) this.#add(this.#own, at, all);
    for (const presence of this.#presences.values()) {
      if (presence.reconnects === 0 && presence.ends === null) continue;
      const values = new Values();
      values.reconnects = presence.reconnects;
      for (const [end, times] of presence.ends ?? []) values.countSession(end, times);
      presence.reconnects = 0;
      presence.ends = null;
      this.#add(presence, at, values);
    }
    this.#takeRuns();
    // While the disk cannot be written, the oldest are lost.
    if (this.#rows.length > MAX_WAITING) this.#rows = this.#rows.slice(-MAX_WAITING);
    if (this.#runs.length > MAX_WAITING) this.#runs = this.#runs.slice(-MAX_WAITING);
  }

  #add(presence: Presence, at: number, values: Values): void {
    const of = this.#subjectOf(presence);
    if (of !== null) this.#rows.push({ of, at, values });
  }

  #takeRuns(): void {
    const now = this.#now();
    for (const [name, presence] of this.#presences) {
      const runs = presence.takeRuns();
      if (runs.length > 0) {
        const of = this.#subjectOf(presence);
        if (of !== null) this.#runs.push(...runs.map((run) => ({ of, ...run })));
      }
      if (presence.isGone(now)) this.#presences.delete(name);
    }
  }

  /** @returns null for sessions of no device, and for more names than an authtoken may have */
  #subjectOf(presence: Presence): HistorySubject | null {
    if (presence.of !== undefined) return presence.of;
    const { kind, key, credentialId } = presence;
    const device = this.context.store.devices.ofAuthtoken(credentialId)?.id ?? '';
    const of = kind === 'device' ? { kind, key: device, device } : { kind, key, device };
    presence.of = of.key === '' || !this.#isAdmitted(of, credentialId) ? null : of;
    return presence.of;
  }

  #isAdmitted(of: HistorySubject, credentialId: string): boolean {
    if (of.kind !== 'endpoint' || this.own.file.has(of)) return true;
    const now = performance.now();
    return this.#newNames.of(credentialId, now).tryTake(now);
  }

  #write(): Promise<void> {
    this.#writtenAt = this.context.clock.now();
    const [rows, runs, away] = [this.#rows, this.#runs, this.#away];
    [this.#rows, this.#runs, this.#away] = [[], [], new Map()];
    const { file } = this.own;
    this.#writing = this.#writing.then(async () => {
      await this.#attempt(
        () => file.write(rows, runs, this.#now(), [...away.values()]),
        () => {
          this.#rows.unshift(...rows);
          this.#runs.unshift(...runs);
          this.#away = new Map([...away, ...this.#away]);
        },
      );
      // Apart: what is written must not be written again because this fails.
      await this.#attempt(() => file.sumUp(Math.floor(this.#time() / MINUTE_MS)));
    });
    return this.#writing;
  }

  async #attempt(work: () => Promise<void>, onFailure: () => void = () => {}): Promise<void> {
    try {
      await work();
    } catch (error) {
      onFailure();
      const times = this.#failures.timesDue('write');
      if (times !== null) this.context.log.warn({ times, reason: messageOf(error) }, 'history not written');
    }
  }

  #time(): number {
    return (this.own.time ?? Date.now)();
  }

  #now(): number {
    return Math.floor(this.#time() / 1000);
  }
}

/** @param offset from the device's clock to this one, in seconds @returns null: it cannot be, or is too long ago */
function awayIn([begun, seconds, ...machine]: SlotAway, offset: number, now: number): Omit<NewAway, 'device'> | null {
  const since = Math.round((begun + offset) / SLOT_SECONDS) * SLOT_SECONDS;
  if (since > now || since <= now - DAY_S - SLOT_SECONDS || seconds === 0) return null;
  return { at: since / 60, seconds, machine };
}

/** What was counted since the last time; null: nothing. */
function newValues(followed: Followed): Values | null {
  const { traffic, before } = followed;
  const isQuiet =
    traffic.requests === before.requests &&
    traffic.received === before.received &&
    traffic.sent === before.sent &&
    // A request may end in a later minute than it began.
    (traffic.ended === null || traffic.ended.counts.every((count, at) => count === before.ended[at]));
  if (isQuiet) return null;
  const total = new Values();
  total.requests = traffic.requests;
  total.setBytes(traffic.received, traffic.sent);
  if (traffic.ended !== null) {
    total.ended.set(traffic.ended.counts);
    if (traffic.ended.refusals !== null) total.tallies = Object.fromEntries(traffic.ended.refusals);
  }
  followed.before = total;
  return total.since(before);
}

function labelText(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .sort()
    .join(',');
}
