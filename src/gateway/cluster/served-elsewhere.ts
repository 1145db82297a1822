import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import type { NodePlace, OtherNodes } from '../edge/relays/other-nodes.ts';
import { coveringNames } from '../endpoints/domain-names.ts';
import { namePlace, placeOf, tcpPlace } from '../endpoints/endpoint-address.ts';
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts';
import type { LiveEndpoint } from '../endpoints/live-view.ts';
import { expectedText } from '../endpoints/online-addresses-file.ts';
import type { InternalAddress, Labels, LostAddress } from '../endpoints/online-endpoint.ts';
import type { PortOpener } from '../endpoints/tcp-port-allocator.ts';
import { type Nodes, placeOfNode } from './nodes.ts';
import type { OnlineRow, OnlineRows } from './online-rows.ts';
import type { Primary } from './primary.ts';

/** Where what this node does not serve is online. */
export class ServedElsewhere implements OtherNodes {
  constructor(
    private readonly options: {
      rows: OnlineRows;
      nodes: Nodes;
      endpoints: Pick<EndpointRegistry, 'isAt' | 'isStalledAt' | 'lost'>;
      primary: Primary;
      /** Selects the tunnels of the TLS edge with exactly this name or wildcard, which every node serves; null: it needs none */
      edgeAt: (name: string) => { labels: Labels | null } | undefined;
      withLabels: (labels: Labels) => NodePlace | undefined;
      catchUp: () => Promise<void>;
      /** Whether a name is a service of the primary node. */
      isService: (name: string) => boolean;
    },
  ) {}

  get primary(): NodePlace | undefined {
    return this.options.primary.place;
  }

  get forAgents(): NodePlace | undefined {
    const { nodes } = this.options;
    if (!nodes.isDraining(nodes.self)) return undefined;
    return this.#oneOf(nodes.others().map(placeOfNode));
  }

  knows(port: 'tls' | 'http', host: string): boolean {
    if (this.options.isService(host)) return true;
    return (port === 'http' && this.#find('http', host) !== undefined) || this.#find('tls', host) !== undefined;
  }

  expectAt(port: 'tls', host: string): LostAddress | undefined {
    const { endpoints, rows } = this.options;
    for (const name of coveringNames(host)) {
      const [row] = rows.atName(port, name);
      if (row === undefined) continue;
      const place = namePlace(port, name);
      const { needsOwnConnection } = row.view as LiveEndpoint;
      const needsHandshake = row.protocol === 'tls' || needsOwnConnection === true;
      endpoints.lost.note({ place, credentialId: row.credential_id, needsHandshake }, 'lost');
      return endpoints.lost.at(place);
    }
    return undefined;
  }

  expectedHere(): string {
    return expectedText(this.options.endpoints.lost.all());
  }

  failed(id: string): void {
    this.options.nodes.failed(id);
  }

  answered(id: string): void {
    this.options.nodes.answered(id);
  }

  serves(id: string): boolean {
    return this.options.nodes.place(id) !== undefined;
  }

  catchUp(): Promise<void> {
    return this.options.catchUp();
  }

  withName(host: string): NodePlace | undefined {
    if (this.options.isService(host)) return this.primary;
    const found = this.#find('tls', host);
    return found === 'here' ? undefined : found;
  }

  withHttpName(host: string): NodePlace | undefined {
    // Where it is only online over TLS, clients are redirected.
    const found = this.#find('http', host) ?? this.#find('tls', host);
    return found === 'here' ? undefined : found;
  }

  withTcpPort(port: number, isHere: boolean): NodePlace | undefined {
    return this.#nodeOf(this.options.rows.at(tcpPlace(port)), isHere);
  }

  withInternal({ protocol, host, port }: InternalAddress): NodePlace | undefined {
    const { rows } = this.options;
    return this.#nodeOf(rows.at(placeOf({ proto: protocol, host, port, internal: true })));
  }

  withShared(scheme: 'http' | 'https', host: string): NodePlace | undefined {
    const { endpoints, edgeAt, rows, isService } = this.options;
    if (isService(host)) return undefined;
    const port = scheme === 'http' ? 'http' : 'tls';
    for (const name of coveringNames(host)) {
      const isHere = endpoints.isAt(port, name);
      if ((isHere && !endpoints.isStalledAt(port, name)) || (port === 'tls' && edgeAt(name))) return undefined;
      const there = [...rows.atName(port, name)];
      const isFit = ({ protocol, view }: OnlineRow) =>
        protocol === scheme && !(view as LiveEndpoint).needsOwnConnection;
      if (there.length > 0) return there.every(isFit) ? this.#nodeOf(there, isHere) : undefined;
      if (isHere) return undefined;
    }
    return undefined;
  }

  /** The most specific name counts, wherever it is. Of several nodes, this one comes first, unless its agent here is stalled. */
  #find(port: 'http' | 'tls', host: string): NodePlace | 'here' | undefined {
    const { endpoints, edgeAt, withLabels, rows } = this.options;
    for (const name of coveringNames(host)) {
      const edge = port === 'tls' ? edgeAt(name) : undefined;
      if (edge) return (edge.labels && withLabels(edge.labels)) ?? 'here';
      const isHere = endpoints.isAt(port, name);
      if (isHere && !endpoints.isStalledAt(port, name)) return 'here';
      const node = this.#nodeOf(rows.atName(port, name), isHere) ?? (isHere ? 'here' : undefined);
      if (node) return node;
    }
    return undefined;
  }

  /** @param isHere whether it is at this node, too: then only nodes are better that answer, and stay */
  #nodeOf(rows: Iterable<OnlineRow>, isHere = false): NodePlace | undefined {
    const { nodes } = this.options;
    const isFit = ({ node }: OnlineRow) => !isHere || !(nodes.isUnreachable(node) || nodes.isDraining(node));
    return this.#oneOf([...rows].filter(isFit).flatMap(({ node }) => nodes.place(node) ?? []));
  }

  /** One of the nodes, with a second one in case that it cannot be reached. */
  #oneOf(places: readonly NodePlace[]): NodePlace | undefined {
    const { nodes } = this.options;
    if (places.length < 2) return places[0];
    // In any order, but those come last that do not answer, or are being emptied.
    const rank = ({ id }: NodePlace) =>
      (nodes.isUnreachable(id) ? 2 : 0) + (nodes.isDraining(id) ? 1 : 0) + Math.random();
    const ranked = places.map((place) => ({ place, at: rank(place) })).sort((a, b) => a.at - b.at);
    const [first, next] = ranked.map(({ place }) => place);
    return first && { ...first, next };
  }
}

/** Another program, or an endpoint that leaves, may use a port now. */
const RETRY_MS = 5_000;

/** Keeps the ports of tcp endpoints open that are online at other nodes. */
export class RelayedPorts {
  readonly #rows = new Map<number, Set<string>>();
  /** Those that are open, or being opened. */
  readonly #opened = new Map<number, Promise<void>>();
  readonly #failures = new Repeats();
  readonly #timer: NodeJS.Timeout;

  constructor(
    private readonly opener: PortOpener,
    private readonly log: Log,
  ) {
    this.#timer = setInterval(() => {
      for (const port of this.#rows.keys()) this.#open(port);
    }, RETRY_MS).unref();
  }

  /** Ends the attempts; open ports stay open. */
  stop(): void {
    clearInterval(this.#timer);
  }

  /** @param isThere whether the row is online at another node, and not taken from it */
  update({ key, protocol, place, taken, view }: OnlineRow, isThere: boolean): void {
    if (protocol !== 'tcp' || !place?.startsWith('tcp ')) return;
    const { port } = view as LiveEndpoint;
    const rows = this.#rows.get(port) ?? new Set();
    if (isThere && !taken) rows.add(key);
    else rows.delete(key);
    if (rows.size > 0) {
      this.#rows.set(port, rows);
      this.#open(port);
    } else {
      this.#rows.delete(port);
      if (this.#opened.delete(port)) this.opener.close(port);
    }
  }

  #open(port: number): void {
    if (this.#opened.has(port)) return;
    const opened = this.opener.open(port);
    this.#opened.set(port, opened);
    opened.catch((error: unknown) => {
      // Else, it was closed meanwhile.
      if (this.#opened.get(port) !== opened) return;
      this.#opened.delete(port);
      const times = this.#failures.timesDue(`${port}`);
      if (times !== null)
        this.log.warn({ port, times, reason: messageOf(error) }, 'tcp port of another gateway not opened');
    });
  }
}
