import { messageOf } from '../../lib/errors.ts';
import { SortedKeys } from '../../lib/sorted-keys.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { EndpointPolicies } from '../endpoints/endpoint-policies.ts';
import type { LiveEndpoint } from '../endpoints/live-view.ts';
import { foundAmong, merged, type StoredEndpoints } from '../endpoints/stored-endpoints.ts';
import type { PortOpener } from '../endpoints/tcp-port-allocator.ts';
import type { CloudEndpointRow } from '../store/cloud-endpoints.ts';
import { CloudEndpoint, NOT_READY } from './cloud-endpoint.ts';

/** Whether its clients come to a port of its own, where they need no name. */
const hasOwnPort = ({ protocol, internal }: CloudEndpoint): boolean => protocol === 'tcp' && !internal;

const RETRY_MS = 5_000;

const NO_FRAME = { before: {}, after: {} };

/**
 * Keeps the cloud endpoints of the database online, at every gateway that has a copy of it. An address is taken and given up
 * in the turn of the event loop that commits the change; a policy takes effect when it is compiled, a moment later.
 */
export class OnlineCloudEndpoints {
  readonly #online = new Map<string, CloudEndpoint>();
  readonly #idsInOrder = new SortedKeys();
  /** Those whose port is open, or being opened. */
  readonly #opened = new Set<CloudEndpoint>();
  readonly #failing = new Set<CloudEndpoint>();
  /** Undefined before the gateway has one, or none. */
  #opener: PortOpener | null | undefined;
  /** Policies are compiled one after another, so that the last change of a row is the last to take effect. */
  #settled: Promise<void> = Promise.resolve();

  constructor(
    private readonly context: Pick<GatewayContext, 'store' | 'endpoints' | 'addresses' | 'log'>,
    private readonly own: {
      policies: EndpointPolicies;
      /** Whether an agent has an address at any gateway of a cluster, in this transaction; null: this gateway is the only one. */
      isLeased: ((place: string) => boolean) | null;
    },
  ) {
    const { database, cloudEndpoints } = context.store;
    cloudEndpoints.takeTouched();
    for (const row of cloudEndpoints.where('id > ?', [''])) this.#put(row.id, row);
    database.onCommit(() => {
      for (const id of cloudEndpoints.takeTouched()) this.#put(id, cloudEndpoints.get(id));
    });
  }

  /**
   * From now on, ports of public tcp endpoints are open while endpoints have them; what fails is tried again.
   * @param opener null: the gateway has no ports for them @returns ends the attempts
   */
  openPorts(opener: PortOpener | null): () => void {
    this.#opener = opener;
    const open = () => {
      for (const endpoint of this.#online.values()) this.#openPort(endpoint);
    };
    open();
    const timer = opener && setInterval(open, RETRY_MS).unref();
    return () => clearInterval(timer ?? undefined);
  }

  /** Resolves when what is committed has taken effect here. */
  settled(): Promise<void> {
    return this.#settled;
  }

  /** Whether an agent of a cluster has an address, or is about to. Ask in a transaction. */
  isLeased(place: string): boolean {
    return this.own.isLeased?.(place) === true;
  }

  views(): LiveEndpoint[] {
    return [...this.#online.values()].map((endpoint) => endpoint.view());
  }

  /** Those and the endpoints of TLS edges, which are few. */
  storedWith(edges: () => readonly LiveEndpoint[]): StoredEndpoints {
    const view = (id: string) => this.#online.get(id)?.view() ?? null;
    const at = (place: string) => this.context.store.cloudEndpoints.at(place).flatMap(({ id }) => view(id) ?? []);
    const withUrl = (url: string) =>
      [...this.context.endpoints.online.withUrl(url)].flatMap(
        ({ isCloud, publicId }) => (isCloud && view(publicId)) || [],
      );
    const online = this.#online;
    const order = this.#idsInOrder;
    function* below(before: string | null) {
      for (const id of order.below(before)) yield (online.get(id) as CloudEndpoint).view();
    }
    return {
      all: () => [...edges(), ...this.views()],
      find: {
        endpoint: (id) => view(id) ?? foundAmong(edges()).endpoint(id),
        endpointsAt: (place) => [...at(place), ...foundAmong(edges()).endpointsAt(place)],
        endpointsWithUrl: (url) => [...withUrl(url), ...foundAmong(edges()).endpointsWithUrl(url)],
        // Operators make these: they are few.
        endpointsWithPeople: () => foundAmong([...edges(), ...this.views()]).endpointsWithPeople(),
        endpointsBelow: (before) => merged([below(before), foundAmong(edges()).endpointsBelow(before)]),
      },
    };
  }

  #put(id: string, row: CloudEndpointRow | null): void {
    const { endpoints, addresses } = this.context;
    const { ports } = addresses;
    let endpoint = this.#online.get(id);
    if (endpoint && endpoint.row.place !== row?.place) {
      this.#online.delete(id);
      this.#idsInOrder.delete(id);
      endpoints.remove(endpoint);
      this.#failing.delete(endpoint);
      if (this.#opened.delete(endpoint)) this.#opener?.close(endpoint.port);
      endpoint = undefined;
    }
    if (row === null) return;
    const hasPolicy = endpoint?.row.traffic_policy === row.traffic_policy;
    const current = endpoint ?? new CloudEndpoint(row, ports);
    current.row = row;
    if (!endpoint) {
      this.#online.set(id, current);
      this.#idsInOrder.add(id);
      endpoints.add(current);
      if (this.#opener !== undefined) this.#openPort(current);
    }
    if (!hasPolicy) this.#settled = this.#settled.then(() => this.#compile(current, row));
  }

  #openPort(endpoint: CloudEndpoint): void {
    if (!hasOwnPort(endpoint) || this.#opened.has(endpoint)) return;
    this.#settled = Promise.all([this.#settled, this.#listen(endpoint)]).then(() => {});
  }

  async #listen(endpoint: CloudEndpoint): Promise<void> {
    const { id, port } = endpoint;
    const { log } = this.context;
    this.#opened.add(endpoint);
    try {
      if (this.#opener === null) throw new Error('tcp endpoints are disabled: GATEWAY_TCP_PORTS is off');
      await this.#opener?.open(port);
      if (this.#failing.delete(endpoint)) log.info({ id, port }, 'tcp port of a cloud endpoint opened');
    } catch (error) {
      // Else, it was removed meanwhile.
      if (!this.#opened.delete(endpoint) || this.#failing.has(endpoint)) return;
      this.#failing.add(endpoint);
      log.error({ id, port, reason: messageOf(error) }, 'tcp port of a cloud endpoint not opened');
    }
  }

  async #compile(endpoint: CloudEndpoint, { id, traffic_policy: text }: CloudEndpointRow): Promise<void> {
    const { log } = this.context;
    const { policies } = this.own;
    const { protocol, internal, host } = endpoint;
    // Counters stay when the gateway gets other ports.
    const url = internal || protocol === 'tcp' ? endpoint.url : `${protocol}://${host}`;
    try {
      endpoint.policy = await policies.compile(text, { protocol, url, payer: id, internal, frame: NO_FRAME });
    } catch (error) {
      // It was checked when it was set: what it names is gone.
      endpoint.policy = NOT_READY;
      log.error({ id, url, reason: messageOf(error) }, 'traffic policy of a cloud endpoint cannot be used');
    }
  }
}
