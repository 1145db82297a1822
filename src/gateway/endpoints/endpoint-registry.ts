import { EventEmitter } from 'node:events';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { isAddressOfUrl } from '../../lib/network/ip-address.ts';
import { coveringNames } from './domain-names.ts';
import { namePlace, placeOf } from './endpoint-address.ts';
import { EndpointIndex, LabeledIndex } from './endpoint-index.ts';
import { haveOneOwner } from './endpoint-owner.ts';
import {
  demandsHandshake,
  type EndpointAddress,
  type EndpointDirectory,
  type EndpointProtocol,
  type ExpectedAgents,
  type GatewayEndpoint,
  type LabeledUpstream,
  type LabelHolder,
  type Labels,
  type LostAddress,
  type OnlineEndpoint,
} from './online-endpoint.ts';

/** Members that take turns; the one that has waited longest is next. */
class RoundRobin<T> {
  readonly #waiting = new Set<T>();

  get members(): readonly T[] {
    return [...this.#waiting];
  }

  get first(): T | undefined {
    const [first] = this.#waiting;
    return first;
  }

  get size(): number {
    return this.#waiting.size;
  }

  add(member: T): void {
    this.#waiting.add(member);
  }

  remove(member: T): boolean {
    return this.#waiting.delete(member);
  }

  next(isEligible: (member: T) => boolean = () => true): T | undefined {
    for (const member of this.#waiting) {
      if (!isEligible(member)) continue;
      if (this.#waiting.size > 1) {
        this.#waiting.delete(member);
        this.#waiting.add(member);
      }
      return member;
    }
    return undefined;
  }
}

type Pools = Map<string, RoundRobin<OnlineEndpoint>>;
type Member = Pick<OnlineEndpoint, 'isResponsive' | 'isStalled'>;

/** Protocols whose clients name the host that they want. */
type NamedProtocol = Exclude<EndpointProtocol, 'tcp'>;

/** The protocol that shares a port with this one; only the name tells their clients apart. */
const SAME_PORT = { http: null, https: 'tls', tls: 'https' } as const;

/** When an endpoint goes online, takes no further connections, and ends what it carries. */
type EndpointEvents = Record<'added' | 'retired' | 'removed', [endpoint: OnlineEndpoint]> &
  Record<'labeled' | 'unlabeled', [tunnel: LabeledUpstream]>;

export class EndpointRegistry extends EventEmitter<EndpointEvents> implements EndpointDirectory {
  readonly lost: LostAddresses;
  readonly #online = new EndpointIndex();
  /** Offline, but some of their connections are still open. */
  readonly #retired = new Set<OnlineEndpoint>();
  readonly #named: Readonly<Record<NamedProtocol, Pools>> = { http: new Map(), https: new Map(), tls: new Map() };
  readonly #tcp: Pools = new Map();
  /** By URL. Kept apart, so that no client reaches an internal endpoint by naming it. */
  readonly #internal: Pools = new Map();
  readonly #labeled = new LabeledIndex();
  /** When labelled tunnels were bound or had their last connections, counted on. */
  readonly #turns = new WeakMap<LabeledUpstream, number>();
  #lastTurn = 0;

  /** @param boundAs the name under which what clients know by another one was bound; left out: clients use no others */
  constructor(private readonly boundAs: (host: string) => string = (host) => host) {
    super();
    this.lost = new LostAddresses(undefined, boundAs);
  }

  /**
   * The endpoint that serves a public name: an exact match, else the most specific wildcard. The members of a pool take
   * turns. Clients of `https` and `tls` share one port, so the more specific name of the two protocols wins.
   */
  lookup(scheme: NamedProtocol, host: string): OnlineEndpoint | undefined {
    return nextOf(this.#poolFor(scheme, host));
  }

  peek(scheme: NamedProtocol, host: string): OnlineEndpoint | undefined {
    return this.#poolFor(scheme, host)?.first;
  }

  onTcpPort(port: number): OnlineEndpoint | undefined {
    return nextOf(this.#tcp.get(String(port)));
  }

  internal(protocol: EndpointProtocol, host: string, port: number): OnlineEndpoint | undefined {
    return nextOf(this.#internal.get(internalKey(protocol, host, port)));
  }

  another(endpoint: GatewayEndpoint, tried: ReadonlySet<GatewayEndpoint>): OnlineEndpoint | undefined {
    const own = endpoint as OnlineEndpoint;
    if (!this.#online.all.has(own)) return undefined;
    const [pools, key] = this.#place(own);
    return nextOf(pools.get(key), (member) => !tried.has(member));
  }

  /**
   * The next labelled tunnel that matches. Those of one owner take turns: of the one whose authtoken has rules, which name
   * labels, or else who bound such a tunnel first. @param elsewhere those at other gateways, for when none here may have the
   * connection
   */
  withLabels<T extends LabelHolder>(selector: Labels, elsewhere: readonly T[]): LabeledUpstream | T | undefined;
  withLabels(selector: Labels): LabeledUpstream | undefined;
  withLabels(selector: Labels, elsewhere: readonly LabelHolder[] = []): LabeledUpstream | LabelHolder | undefined {
    const matching = this.#labeled.matching(selector);
    const entitled = entitledOf(elsewhere.length === 0 ? matching : inOneOrder([...matching, ...elsewhere]));
    if (entitled === undefined) return undefined;
    const isEntitled = ({ owner }: LabelHolder) => haveOneOwner(owner.credential, entitled.owner.credential);
    return this.#nextTurn(matching.filter(isEntitled)) ?? elsewhere.find(isEntitled);
  }

  /** The one that has waited longest, responsive ones first. */
  #nextTurn(tunnels: readonly LabeledUpstream[]): LabeledUpstream | undefined {
    const responsive = tunnels.filter(({ isResponsive }) => isResponsive);
    const answering = responsive.length > 0 ? responsive : tunnels.filter(({ isStalled }) => !isStalled);
    const turnOf = (tunnel: LabeledUpstream) => this.#turns.get(tunnel) ?? 0;
    const next = leastOf(answering.length > 0 ? answering : tunnels, turnOf);
    if (next) this.#takeTurn(next);
    return next;
  }

  #takeTurn(tunnel: LabeledUpstream): void {
    this.#lastTurn += 1;
    this.#turns.set(tunnel, this.#lastTurn);
  }

  list(): OnlineEndpoint[] {
    return [...this.#online.all];
  }

  /** Online endpoints, by their keys. */
  get online(): Omit<EndpointIndex, 'add' | 'delete'> {
    return this.#online;
  }

  /** Labelled tunnels, likewise. */
  get labeledOnline(): Omit<LabeledIndex, 'add' | 'delete'> {
    return this.#labeled;
  }

  /** Offline, but some of their connections are still open. */
  get retired(): ReadonlySet<OnlineEndpoint> {
    return this.#retired;
  }

  hasId(publicId: string): boolean {
    return this.#online.withId(publicId) !== undefined;
  }

  labeled(): readonly LabeledUpstream[] {
    return [...this.#labeled.all];
  }

  /** The endpoints that occupy an address: several when they are pooled, none when it is free. */
  holders(address: EndpointAddress): readonly OnlineEndpoint[] {
    const [pools, key] = this.#place(address);
    const own = pools.get(key)?.members ?? [];
    const other = address.internal || address.protocol === 'tcp' ? null : SAME_PORT[address.protocol];
    return other === null ? own : [...own, ...(this.#named[other].get(address.host)?.members ?? [])];
  }

  atName(host: string): readonly OnlineEndpoint[] {
    return Object.values(this.#named).flatMap((pools) => pools.get(host)?.members ?? []);
  }

  /** Whether endpoints are online at exactly this name or wildcard, for clients of a port. */
  isAt(port: 'http' | 'tls', name: string): boolean {
    if (port === 'http') return this.#named.http.has(name);
    return this.#named.https.has(name) || this.#named.tls.has(name);
  }

  /** Whether the agents of all endpoints at exactly this name or wildcard are stalled. */
  isStalledAt(port: 'http' | 'tls', name: string): boolean {
    return this.atPlace(namePlace(port, name)).every(({ isStalled }) => isStalled);
  }

  /** The endpoints at an address, as `placeOf` says. */
  atPlace(place: string): readonly OnlineEndpoint[] {
    const [kind = '', rest = ''] = place.split(' ');
    if (kind === 'internal') return this.#internal.get(rest)?.members ?? [];
    if (kind === 'tcp') return this.#tcp.get(rest)?.members ?? [];
    const names = kind === 'http' ? [this.#named.http] : [this.#named.https, this.#named.tls];
    return names.flatMap((pools) => pools.get(rest)?.members ?? []);
  }

  atUrl(url: string): readonly OnlineEndpoint[] {
    const { protocol, hostname: host, port } = new URL(url);
    if (isAddressOfUrl(host) && protocol !== 'tcp:') return [...this.#online.withUrl(url)];
    return this.holders({
      protocol: protocol.slice(0, -1) as EndpointProtocol,
      host,
      port: Number(port),
      internal: false,
    });
  }

  /** Puts an endpoint online. The caller has checked with {@link holders} that it can have its address. */
  add(endpoint: OnlineEndpoint): void {
    const [pools, key] = this.#place(endpoint);
    const pool = pools.get(key) ?? new RoundRobin();
    pools.set(key, pool);
    pool.add(endpoint);
    this.#online.add(endpoint);
    this.emit('added', endpoint);
    this.lost.found(placeAt(endpoint));
  }

  /**
   * Takes an endpoint offline: no further connection is routed to it, and others can have its address.
   * @param absence why its agent is expected back; null: it is not
   */
  retire(endpoint: OnlineEndpoint, absence: Absence | null = null): void {
    if (!this.#takeOut(endpoint, absence)) return;
    this.#retired.add(endpoint);
    this.emit('retired', endpoint);
  }

  /** Takes an endpoint offline, and ends what it still carries. @param absence as in {@link retire} */
  remove(endpoint: OnlineEndpoint, absence: Absence | null = null): void {
    if (this.#takeOut(endpoint, absence) || this.#retired.delete(endpoint)) this.emit('removed', endpoint);
  }

  /** The agent of an endpoint that is offline is expected back. */
  expect(endpoint: OnlineEndpoint, absence: Absence): void {
    if (this.holders(endpoint).length === 0) this.lost.note(lostAddressOf(endpoint), absence);
  }

  #takeOut(endpoint: OnlineEndpoint, absence: Absence | null): boolean {
    if (!this.#online.delete(endpoint)) return false;
    const [pools, key] = this.#place(endpoint);
    const pool = pools.get(key);
    pool?.remove(endpoint);
    if (pool?.size === 0) pools.delete(key);
    if (absence !== null) this.expect(endpoint, absence);
    return true;
  }

  addLabeled(tunnel: LabeledUpstream): void {
    this.#labeled.add(tunnel);
    this.#takeTurn(tunnel);
    this.emit('labeled', tunnel);
  }

  removeLabeled(tunnel: LabeledUpstream): void {
    this.#labeled.delete(tunnel);
    this.emit('unlabeled', tunnel);
  }

  #poolFor(scheme: NamedProtocol, host: string): RoundRobin<OnlineEndpoint> | undefined {
    const pools = this.#named[scheme];
    const other = SAME_PORT[scheme];
    for (let name = this.boundAs(host); name !== ''; name = nextWildcard(name)) {
      const pool = pools.get(name);
      if (pool) return pool;
      if (other !== null && this.#named[other].has(name)) return undefined;
    }
    return undefined;
  }

  #place({ protocol, host, port, internal }: EndpointAddress): [pools: Pools, key: string] {
    if (internal) return [this.#internal, internalKey(protocol, host, port)];
    return protocol === 'tcp' ? [this.#tcp, String(port)] : [this.#named[protocol], host];
  }
}

/**
 * The next member of a pool, responsive ones first: a session that is dead but not yet detected costs it one connection, one
 * that is full none, and an upstream that is down one now and then. Those whose agents are stalled come last.
 */
function nextOf<T extends Member>(pool: RoundRobin<T> | undefined, isEligible?: (member: T) => boolean): T | undefined {
  // Most pools have one member, which is eligible.
  if (pool === undefined || (pool.size === 1 && !isEligible)) return pool?.first;
  const next = (isFit: (member: Member) => boolean) =>
    pool.next((member) => isFit(member) && isEligible?.(member) !== false);
  return next(({ isResponsive }) => isResponsive) ?? next(({ isStalled }) => !isStalled) ?? pool.next(isEligible);
}

/** The first of those with the least value. */
function leastOf<T>(among: readonly T[], ranked: (one: T) => number): T | undefined {
  return among.reduce<T | undefined>(
    (least, one) => (least === undefined || ranked(one) < ranked(least) ? one : least),
    undefined,
  );
}

/** The order of binding, the same at all gateways whose clocks agree. */
function inOneOrder(holders: readonly LabelHolder[]): LabelHolder[] {
  const seconds = ({ boundAt }: LabelHolder) => Math.floor(boundAt.getTime() / 1000);
  return [...holders].sort((a, b) => seconds(a) - seconds(b) || (a.publicId < b.publicId ? -1 : 1));
}

function entitledOf(tunnels: readonly LabelHolder[]): LabelHolder | undefined {
  const [first] = tunnels;
  const credentials = new Map(tunnels.map(({ owner: { credential } }) => [credential.id, credential]));
  const isShared = [...credentials.values()].every((each) => first && haveOneOwner(each, first.owner.credential));
  if (isShared) return first;
  const withRules = new Set([...credentials.values()].filter((each) => each.hasRules()).map(({ id }) => id));
  return tunnels.find(({ owner }) => withRules.has(owner.credential.id)) ?? first;
}

/** The most specific wildcard above a name or wildcard; empty at the top. */
function nextWildcard(name: string): string {
  const dot = name.indexOf('.', name.startsWith('*.') ? 2 : 0);
  return dot === -1 ? '' : `*${name.slice(dot)}`;
}

/** What is remembered of an endpoint whose agent is expected back. */
export function lostAddressOf(endpoint: OnlineEndpoint): Omit<LostAddress, 'until'> {
  return {
    place: placeAt(endpoint),
    credentialId: endpoint.owner.credential.id,
    needsHandshake: endpoint.protocol === 'tls' || demandsHandshake(endpoint),
  };
}

const placeAt = ({ protocol: proto, host, port, internal }: EndpointAddress): string =>
  placeOf({ proto, host, port, internal });

function internalKey(protocol: EndpointProtocol, host: string, port: number): string {
  return `${protocol}://${host}:${port}`;
}

/** How long an agent is expected back, in milliseconds: they need some seconds when all have lost their gateway at once. */
export const LOST_MS = 10_000;
/** SDKs unbind their endpoints before they leave. So many milliseconds later, the session has ended, or it goes on. */
export const LEAVING_MS = 1_000;
/** How long agents are expected after a restart at most, in milliseconds: those of others come back meanwhile. */
const RESTARTED_MS = 300_000;
/** Addresses that are remembered: more than lose their agents at once. */
const MAX_LOST = 50_000;

/**
 * Why an agent may come back soon for an endpoint that goes offline. `lost`: its session has ended, or the agent leaves in
 * order. `leaving`: an SDK has unbound it, perhaps because its program ends. `restarted`: the gateway has ended, and agents come back
 * to the next one as fast as it can take them.
 */
export type Absence = 'lost' | 'leaving' | 'restarted';

/**
 * Addresses that have lost their agents a moment ago. Clients wait for them, instead of being told that nobody has them. This
 * gives nobody a right to an address: any authtoken that may bind it can.
 */
export class LostAddresses extends EventEmitter<Record<'found', [place: string]>> implements ExpectedAgents {
  readonly #lost = new BoundedMap<string, LostAddress & { readonly absence: Absence }>(MAX_LOST);
  /** Of those that a restart has taken, in milliseconds of the clock: when it was, and until when they are expected. */
  #restart = { at: 0, until: 0 };

  /** @param now milliseconds that only grow @param boundAs as in {@link EndpointRegistry} */
  constructor(
    private readonly now: () => number = () => performance.now(),
    private readonly boundAs: (host: string) => string = (host) => host,
  ) {
    super();
  }

  note(address: Omit<LostAddress, 'until'>, absence: Absence): void {
    const known = this.#lost.get(address.place);
    // It has not been back since the restart.
    if (absence === 'lost' && known?.absence === 'restarted' && this.at(address.place)) return;
    const at = this.now();
    const until = at + (absence === 'leaving' ? LEAVING_MS : LOST_MS);
    if (absence === 'restarted') this.#restart = { at, until };
    this.#lost.set(address.place, { ...address, until, absence });
  }

  /** The address is online again, here or at another gateway. */
  found(place: string): void {
    const lost = this.#lost.get(place);
    if (lost === undefined) return;
    const [now, { at, until }] = [this.now(), this.#restart];
    // One that comes later says nothing of those that have been given up.
    if (lost.absence === 'restarted' && now < until)
      this.#restart = { at, until: Math.min(now + LOST_MS, at + RESTARTED_MS) };
    this.#lost.delete(place);
    this.emit('found', place);
  }

  at(place: string): LostAddress | undefined {
    const lost = this.#lost.get(place);
    if (lost === undefined) return undefined;
    const until = lost.absence === 'restarted' ? this.#restart.until : lost.until;
    if (this.now() < until) return { ...lost, until };
    this.#lost.delete(place);
    return undefined;
  }

  covering(port: 'http' | 'tls', host: string): LostAddress | undefined {
    if (this.#lost.size === 0) return undefined;
    for (const name of coveringNames(this.boundAs(host))) {
      const lost = this.at(namePlace(port, name));
      if (lost) return lost;
    }
    return undefined;
  }

  /** Those whose agents are still expected. */
  all(): LostAddress[] {
    return [...this.#lost.keys()].flatMap((place) => this.at(place) ?? []);
  }
}
