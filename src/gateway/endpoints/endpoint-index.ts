import { ClientShares } from '../../lib/network/client-shares.ts';
import { SetsByKey } from '../../lib/sets-by-key.ts';
import { SortedKeys } from '../../lib/sorted-keys.ts';
import { type LabeledUpstream, type Labels, matchesSelector, type OnlineEndpoint } from './online-endpoint.ts';

const itself = (key: string): string => key;

/** Endpoints in the order in which they came online. What concerns a few of them looks at these. */
export class EndpointIndex {
  readonly #all = new Set<OnlineEndpoint>();
  readonly #byId = new Map<string, OnlineEndpoint>();
  readonly #byCredential = new SetsByKey<OnlineEndpoint>();
  /** Of agents, on ports of their own. */
  readonly #tcpByCredential = new ClientShares<OnlineEndpoint>(itself);
  /** Of agents. */
  readonly #idsInOrder = new SortedKeys();
  readonly #byUrl = new SetsByKey<OnlineEndpoint>();
  /** Under which URL: that of a cloud endpoint follows from the gateway's ports. */
  readonly #urls = new WeakMap<OnlineEndpoint, string>();
  readonly #byName = new SetsByKey<OnlineEndpoint>();
  /** From the top level down, so that the names below one lie together. */
  readonly #namesInOrder = new SortedKeys();
  /** Of agents. */
  readonly #withPeople = new Set<OnlineEndpoint>();
  readonly #agentsByProtocol = new Map<string, number>();
  readonly #turns = new WeakMap<OnlineEndpoint, number>();
  #lastTurn = 0;

  get size(): number {
    return this.#all.size;
  }

  get all(): ReadonlySet<OnlineEndpoint> {
    return this.#all;
  }

  add(endpoint: OnlineEndpoint): void {
    this.#all.add(endpoint);
    this.#lastTurn += 1;
    this.#turns.set(endpoint, this.#lastTurn);
    this.#byId.set(endpoint.publicId, endpoint);
    this.#urls.set(endpoint, endpoint.url);
    this.#byUrl.add(endpoint.url, endpoint);
    if (endpoint.isCloud) return;
    this.#idsInOrder.add(endpoint.publicId);
    this.#byCredential.add(endpoint.owner.credential.id, endpoint);
    if (hasOwnPort(endpoint)) this.#tcpByCredential.add(endpoint.owner.credential.id, endpoint);
    this.#byName.add(endpoint.host, endpoint);
    this.#namesInOrder.add(fromTheTop(endpoint.host));
    this.notePolicy(endpoint);
    this.#count(endpoint, 1);
  }

  /** It has another policy. */
  notePolicy(endpoint: OnlineEndpoint): void {
    if (endpoint.policy.admission && this.#all.has(endpoint)) this.#withPeople.add(endpoint);
    else this.#withPeople.delete(endpoint);
  }

  /** @returns whether it was there */
  delete(endpoint: OnlineEndpoint): boolean {
    if (!this.#all.delete(endpoint)) return false;
    if (this.#byId.get(endpoint.publicId) === endpoint) this.#byId.delete(endpoint.publicId);
    this.#byUrl.delete(this.#urls.get(endpoint) ?? '', endpoint);
    if (endpoint.isCloud) return true;
    this.#idsInOrder.delete(endpoint.publicId);
    this.#byCredential.delete(endpoint.owner.credential.id, endpoint);
    this.#tcpByCredential.delete(endpoint.owner.credential.id, endpoint);
    this.#byName.delete(endpoint.host, endpoint);
    if (!this.#byName.has(endpoint.host)) this.#namesInOrder.delete(fromTheTop(endpoint.host));
    this.#withPeople.delete(endpoint);
    this.#count(endpoint, -1);
    return true;
  }

  withId(publicId: string): OnlineEndpoint | undefined {
    return this.#byId.get(publicId);
  }

  /** Grows from each endpoint to the next one that came online. */
  turnOf(endpoint: OnlineEndpoint): number {
    return this.#turns.get(endpoint) ?? 0;
  }

  withUrl(url: string): ReadonlySet<OnlineEndpoint> {
    return this.#byUrl.get(url);
  }

  /** Those of agents at which people of the gateway may sign in. */
  get withPeople(): Iterable<OnlineEndpoint> {
    return this.#withPeople;
  }

  /** Those of an authtoken. */
  ofCredential(credentialId: string): ReadonlySet<OnlineEndpoint> {
    return this.#byCredential.get(credentialId);
  }

  /** Those of agents with ids below one, the last id first; null: all. */
  *below(publicId: string | null): Generator<OnlineEndpoint> {
    for (const id of this.#idsInOrder.below(publicId)) yield this.#byId.get(id) as OnlineEndpoint;
  }

  /** Those of agents whose names a domain covers: its own, or all below a wildcard. */
  *covered(domain: string): Generator<OnlineEndpoint> {
    yield* this.#byName.get(domain);
    if (!domain.startsWith('*.')) return;
    for (const name of this.#namesInOrder.startingWith(fromTheTop(domain.slice(1))))
      if (name !== fromTheTop(domain)) yield* this.#byName.get(fromTheTop(name));
  }

  /** The newest tcp endpoint of the authtoken with most of them; null: it has no two more than another authtoken. */
  newestTcpOfLargestShare(credentialId: string): OnlineEndpoint | null {
    return [...this.#tcpByCredential.excessFor(credentialId)].at(-1) ?? null;
  }

  /** How many agents have online, by protocol. */
  get countsOfAgents(): ReadonlyMap<string, number> {
    return this.#agentsByProtocol;
  }

  #count({ protocol }: OnlineEndpoint, change: 1 | -1): void {
    this.#agentsByProtocol.set(protocol, (this.#agentsByProtocol.get(protocol) ?? 0) + change);
  }
}

/** Whether its clients are told apart by its port. */
const hasOwnPort = ({ protocol, internal }: OnlineEndpoint): boolean => protocol === 'tcp' && !internal;

/** `a.example.com` as `com.example.a`, and back; what is below `.example.com` begins with `com.example.`. */
const fromTheTop = (name: string): string => name.split('.').reverse().join('.');

/** Labelled tunnels in the order of their binding. */
export class LabeledIndex {
  readonly #byId = new Map<string, LabeledUpstream>();
  readonly #byLabel = new SetsByKey<LabeledUpstream>();
  readonly #idsInOrder = new SortedKeys();

  get size(): number {
    return this.#byId.size;
  }

  get all(): Iterable<LabeledUpstream> {
    return this.#byId.values();
  }

  add(tunnel: LabeledUpstream): void {
    this.#byId.set(tunnel.publicId, tunnel);
    this.#idsInOrder.add(tunnel.publicId);
    for (const label of labelKeys(tunnel.labels)) this.#byLabel.add(label, tunnel);
  }

  /** @returns whether it was there */
  delete(tunnel: LabeledUpstream): boolean {
    if (this.#byId.get(tunnel.publicId) !== tunnel) return false;
    this.#byId.delete(tunnel.publicId);
    this.#idsInOrder.delete(tunnel.publicId);
    for (const label of labelKeys(tunnel.labels)) this.#byLabel.delete(label, tunnel);
    return true;
  }

  withId(publicId: string): LabeledUpstream | undefined {
    return this.#byId.get(publicId);
  }

  /** Those with ids below one, the last id first; null: all. */
  *below(publicId: string | null): Generator<LabeledUpstream> {
    for (const id of this.#idsInOrder.below(publicId)) yield this.#byId.get(id) as LabeledUpstream;
  }

  /** Those that a selector matches: looks at those with the label of it that fewest have. */
  matching(selector: Labels): LabeledUpstream[] {
    const sets = labelKeys(selector).map((label) => this.#byLabel.get(label));
    const [fewest = []] = sets.sort((one, other) => one.size - other.size);
    return [...fewest].filter(({ labels }) => matchesSelector(labels, selector));
  }
}

const labelKeys = (labels: Labels): string[] => Object.entries(labels).map((label) => JSON.stringify(label));
