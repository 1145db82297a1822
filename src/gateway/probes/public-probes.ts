import { Limiter } from '../../lib/limiter.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import type { Cluster } from '../cluster/cluster.ts';
import type { Unreached } from '../conditions/conditions.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { Relays } from '../edge/relays/relays.ts';
import { apiHost, isLocalDomain } from '../endpoints/domain-names.ts';
import type { LiveEndpoint, LiveView } from '../endpoints/live-view.ts';
import { PROBE_STAGES, type ProbeOutcome, type ProbeStage, type ProbeTokens } from '../endpoints/probe-outcome.ts';
import { timestamp } from '../store/store.ts';
import { type ProbeResult, ProbesElsewhere, probesText } from './probes-elsewhere.ts';
import { PublicProbe } from './public-probe.ts';

/** How often endpoints are looked at, and when they are asked: usually, while something is wrong, and at the soonest. */
const LOOK_MS = 2_000;
const EVERY_MS = 15_000;
/** The same for each of many endpoints, and for any number of them. */
const EACH_MS = 50;
const SELDOM_MS = 60_000;
const BROKEN_MS = 10_000;
const SOONEST_MS = 8_000;
/** Devices that pay for what they send: an operator says so, or their agent does, or this label. */
const METERED = { label: 'link', value: 'metered' } as const;
const METERED_MS = 86_400_000;
const METERED_BROKEN_MS = 3_600_000;
/** What another gateway has taken over is known no longer. */
const STALE_MS = 150_000;
const AT_ONCE = 16;
/** Endpoints that are asked; more wait until others are gone. */
const MAX_PROBED = 5_000;

interface Found {
  readonly url: string;
  readonly credentialId: string | null;
  readonly result: ProbeResult;
}

interface Asked {
  readonly credentialId: string | null;
  result: ProbeResult | null;
  /** When it was asked last, by the clock; never: at once. */
  askedAt: number;
  isAsking: boolean;
  /** What clients have met, when it was asked last: more of it is a reason to ask again. */
  seen: number;
  /** Its policy or its agent when it was asked last. */
  version: string;
}

/**
 * Asks chosen endpoints by their public addresses, as clients do, four times a minute; sooner when something has changed, or clients get
 * errors. Of several gateways, one asks that does not serve the endpoint itself.
 */
export class PublicProbes {
  readonly #asked = new Map<string, Asked>();
  readonly #limiter = new Limiter(AT_ONCE);
  readonly #failures = new Repeats();
  #cancel: (() => void) | null = null;
  #isStopped = false;

  constructor(
    private readonly context: Pick<GatewayContext, 'store' | 'endpoints' | 'clock' | 'log'>,
    private readonly own: {
      /** Sites and hostnames; `*`: all endpoints. */
      readonly chosen: readonly string[];
      readonly probe: Pick<PublicProbe, 'ask'>;
      readonly live: Pick<LiveView, 'endpoints' | 'gateways' | 'holders'>;
      /** Null: this gateway is the only one. */
      readonly elsewhere: Pick<ProbesElsewhere, 'at' | 'learn'> | null;
    },
  ) {}

  start(): void {
    this.#look();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
  }

  /** What the last probe of a URL has found, of whichever gateway; null: no gateway has asked. */
  at(url: string): ProbeResult | null {
    const here = this.#asked.get(url)?.result ?? null;
    const there = this.own.elsewhere?.at(url) ?? null;
    return here === null || (there !== null && there.at > here.at) ? there : here;
  }

  /** What this gateway has found, for another one. @param details of its question */
  told(details: string): string {
    return probesText(this.#found(), details);
  }

  /** How many endpoints broke at which stage, of those that no other gateway has asked later. */
  counts(): ReadonlyMap<ProbeStage | 'none', number> {
    const counts = new Map<ProbeStage | 'none', number>(
      ['none', ...PROBE_STAGES].map((stage) => [stage as ProbeStage, 0]),
    );
    for (const { result } of this.#foundLast()) {
      const stage = result.stage ?? 'none';
      counts.set(stage, (counts.get(stage) ?? 0) + 1);
    }
    return counts;
  }

  /** Endpoints that are online, and that clients do not reach, as far as no other gateway has asked later. */
  unreached(): Unreached[] {
    return [...this.#foundLast()].flatMap(({ url, result, credentialId }) => {
      const { stage, message, since } = result;
      return stage === null ? [] : [{ url, credentialId, stage, message, since: timestamp(since) }];
    });
  }

  *#found(): Iterable<Found> {
    for (const [url, { result, credentialId }] of this.#asked) {
      // While it is asked here for the first time, the result of another gateway stands for it.
      if (result !== null && result !== this.own.elsewhere?.at(url)) yield { url, credentialId, result };
    }
  }

  *#foundLast(): Iterable<Found> {
    for (const found of this.#found()) if (found.result === this.at(found.url)) yield found;
  }

  #look(): void {
    if (this.#isStopped) return;
    this.#cancel = this.context.clock.after(LOOK_MS, () => this.#look());
    const { live } = this.own;
    const online = new Map(
      live
        .endpoints()
        .filter((each) => this.#isChosen(each))
        .map((each) => [each.url, each]),
    );
    for (const url of this.#asked.keys()) if (!online.has(url)) this.#asked.delete(url);
    this.own.elsewhere?.learn(online);
    const holders = live.holders?.() ?? new Map<string, ReadonlySet<string>>();
    for (const endpoint of online.values()) {
      if (!this.#asked.has(endpoint.url) && this.#asked.size >= MAX_PROBED) continue;
      if (this.#isDue(endpoint, holders)) void this.#ask(endpoint);
      else this.#follow(endpoint);
    }
  }

  /** A hung upstream is known after 8 s: without clients, within half a minute. */
  get #every(): number {
    return Math.min(SELDOM_MS, Math.max(EVERY_MS, this.#asked.size * EACH_MS));
  }

  #isChosen({ host, proto, internal }: LiveEndpoint): boolean {
    if (internal || (proto !== 'https' && proto !== 'http')) return false;
    return this.own.chosen.some((name) => name === '*' || host === name || host.endsWith(`.${name}`));
  }

  #isDue(
    { url, credentialId, sessionId, updatedAt }: LiveEndpoint,
    holders: ReadonlyMap<string, ReadonlySet<string>>,
  ): boolean {
    const now = this.context.clock.now();
    const asked = this.#asked.get(url);
    if (asked?.isAsking) return false;
    const isNew = asked?.version !== `${sessionId} ${updatedAt}`;
    const isBroken = asked?.result?.stage != null;
    const age = asked === undefined ? Number.POSITIVE_INFINITY : now - asked.askedAt;
    // Who serves it sees what clients meet there.
    const isChanged = asked !== undefined && age >= SOONEST_MS && (isNew || this.#seen(url) !== asked.seen);
    // Of many endpoints, few come so far: the database is asked for these.
    if (!isChanged && age < (isBroken ? BROKEN_MS : this.#every)) return false;
    const isMetered = this.#isMetered(credentialId);
    if (isMetered) return this.#isMeteredDue(url, age) && this.#isOurs(url, holders.get(url));
    if (isChanged) return true;
    const every = isBroken ? BROKEN_MS : this.#every;
    // What is broken is asked until it is not: another gateway may not have noticed.
    return age >= every && (isBroken || this.#isOurs(url, holders.get(url)));
  }

  /** It pays for each probe: that of a gateway which has gone counts, too. @param age since this gateway has asked */
  #isMeteredDue(url: string, age: number): boolean {
    const there = this.own.elsewhere?.at(url) ?? null;
    const every = this.at(url)?.stage == null ? METERED_MS : METERED_BROKEN_MS;
    return Math.min(age, there === null ? Number.POSITIVE_INFINITY : Date.now() - there.at) >= every;
  }

  /** Forgets what another gateway has taken over. Of what it asks and this one serves, it sees what clients meet. */
  #follow({ url, credentialId, sessionId, updatedAt }: LiveEndpoint): void {
    const asked = this.#asked.get(url);
    const now = this.context.clock.now();
    if (asked === undefined && this.context.endpoints.atUrl(url).length > 0 && !this.#isMetered(credentialId)) {
      const fresh = { result: null, askedAt: now, isAsking: false, seen: this.#seen(url) };
      this.#asked.set(url, { credentialId, version: `${sessionId} ${updatedAt}`, ...fresh });
    }
    if (asked === undefined || asked.isAsking || now - asked.askedAt <= STALE_MS) return;
    if (!this.#isMetered(credentialId)) this.#asked.delete(url);
  }

  #isMetered(credentialId: string | null): boolean {
    if (credentialId === null) return false;
    const device = this.context.store.devices.byCredential(credentialId);
    if (device === null) return false;
    return device.metered ?? (device.link === 'metered' || device.labels[METERED.label] === METERED.value);
  }

  /** Errors and refusals of clients. */
  #seen(url: string): number {
    return this.context.endpoints.atUrl(url).reduce((sum, { traffic }) => sum + traffic.troubles, 0);
  }

  /** Of the gateways that serve, one that does not have the endpoint, if there is one: each knows which. */
  #isOurs(url: string, holders: ReadonlySet<string> = new Set()): boolean {
    const serving = (this.own.live.gateways?.() ?? []).filter(({ state }) => state === 'serving');
    if (serving.length < 2) return true;
    const others = serving.filter(({ id }) => !holders.has(id));
    const candidates = others.length > 0 ? others : serving;
    candidates.sort((one, other) => (one.id < other.id ? -1 : 1));
    return candidates[hashOf(url) % candidates.length]?.isThis === true;
  }

  async #ask({ url, access = [], sessionId, updatedAt, credentialId }: LiveEndpoint): Promise<void> {
    const { clock } = this.context;
    const before = this.at(url);
    const asked: Asked = {
      ...{ credentialId, result: before, askedAt: clock.now(), isAsking: true },
      ...{ seen: this.#seen(url), version: `${sessionId} ${updatedAt}` },
    };
    this.#asked.set(url, asked);
    await this.#settle(url, asked, () => this.own.probe.ask({ url, access }));
  }

  async #settle(url: string, asked: Asked, ask: () => Promise<ProbeOutcome | null>): Promise<void> {
    const { log } = this.context;
    const before = asked.result;
    asked.isAsking = true;
    try {
      const outcome = await this.#limiter.run(ask);
      if (outcome === null) return;
      const at = Date.now();
      const isSame = before !== null && before.stage === outcome.stage;
      asked.result = { ...outcome, at, since: isSame ? before.since : at };
      if (outcome.stage === null || isSame) return;
      const times = this.#failures.timesDue(url);
      if (times !== null)
        log.warn({ url, stage: outcome.stage, reason: outcome.message, times }, 'endpoint not reached from outside');
    } catch (err) {
      log.error({ err, url }, 'endpoint not probed');
    } finally {
      asked.isAsking = false;
    }
  }
}

/** Asks chosen endpoints as clients do, from now on, until the gateway stops. */
export function startProbes(
  context: GatewayContext,
  {
    live,
    tokens,
    trusted,
    others,
  }: {
    live: LiveView;
    tokens: ProbeTokens;
    trusted: () => string;
    /** Null: this gateway is the only one. */
    others: { readonly relays: Relays; readonly cluster: Cluster } | null;
  },
): PublicProbes {
  const { options, addresses, onStop } = context;
  const { baseDomain, ports } = addresses;
  const elsewhere = others && new ProbesElsewhere(others.cluster.nodes, others.relays);
  const probe = new PublicProbe({
    ownName: isLocalDomain(baseDomain) ? null : apiHost(baseDomain),
    resolvers: options.acme?.resolvers ?? null,
    ...{ tokens, trusted: () => [trusted(), options.acme?.issuers ?? ''].join('\n') },
    here: { host: options.host, ports },
  });
  const probes = new PublicProbes(context, { chosen: options.probes ?? [], probe, live, elsewhere });
  probes.start();
  onStop(() => probes.stop());
  return probes;
}

function hashOf(text: string): number {
  let hash = 0;
  for (let at = 0; at < text.length; at++) hash = (Math.imul(hash, 31) + text.charCodeAt(at)) >>> 0;
  return hash;
}
