import { EventEmitter } from 'node:events';
import type {
  ConnectedEndpoint,
  Connector,
  ConnectorEvents,
  EndpointEnd,
  EndpointRequest,
  SessionStatus,
} from '../../src/agent/connectors/connector.ts';
import { ApiError } from '../../src/lib/errors.ts';

/** An in-memory gateway, for behaviour that a real one cannot show on demand. */
export class FakeConnector extends EventEmitter<ConnectorEvents> implements Connector {
  status: SessionStatus = {
    state: 'connecting',
    since: new Date(),
    gateway: 'gateway.test:443',
    reconnects: 0,
    lastError: null,
  };
  /** Requests in the order of their arrival. */
  readonly requests: EndpointRequest[] = [];
  /** The bound endpoints by URL. */
  readonly bound = new Map<string, FakeEndpoint>();
  /** Called before every bind; may wait or throw. */
  beforeOpen: (request: EndpointRequest) => Promise<void> = async () => {};
  /** Called before every close; may wait or throw. */
  beforeClose: (url: string) => Promise<void> = async () => {};
  /** Port in the URLs of http endpoints. */
  httpsPort = 8443;
  #chosen = 0;

  get isOnline(): boolean {
    return this.status.state === 'online';
  }

  start(): void {
    this.goOnline();
  }

  async stop(): Promise<void> {
    this.#endSession('stopped');
  }

  goOnline(): void {
    const reconnects = this.status.state === 'offline' ? this.status.reconnects + 1 : this.status.reconnects;
    this.status = { ...this.status, state: 'online', since: new Date(), reconnects, lastError: null };
    this.emit('online');
  }

  goOffline(): void {
    this.#endSession('offline');
    this.emit('offline');
  }

  async open(request: EndpointRequest): Promise<ConnectedEndpoint> {
    this.requests.push(request);
    this.#requireSession();
    await this.beforeOpen(request);
    this.#requireSession();
    const url = this.#urlOf(request);
    if (this.bound.has(url)) throw new ApiError(409, 'ERR_NGROK_334', `${url} is already online`);
    const endpoint = new FakeEndpoint(url, request, async () => {
      await this.beforeClose(url);
      if (this.bound.get(url) === endpoint) this.bound.delete(url);
    });
    this.bound.set(url, endpoint);
    return endpoint;
  }

  #requireSession(): void {
    if (this.status.state !== 'online') throw new ApiError(503, 'ERR_AGENT_OFFLINE', 'there is no session');
  }

  #urlOf({ protocol, domain }: EndpointRequest): string {
    const chosen = domain ?? `chosen-${++this.#chosen}.localhost`;
    if (protocol === 'http') return `https://${chosen}:${this.httpsPort}`;
    if (protocol === 'tls') return `tls://${chosen}`;
    return chosen.includes(':') ? `tcp://${chosen}` : `tcp://${chosen}:${20_000 + this.#chosen}`;
  }

  #endSession(state: 'offline' | 'stopped'): void {
    this.status = { ...this.status, state, since: new Date(), lastError: { code: null, message: 'connection lost' } };
    const endpoints = [...this.bound.values()];
    this.bound.clear();
    for (const endpoint of endpoints) endpoint.end({ code: null, message: 'the session was lost' });
  }
}

export class FakeEndpoint implements ConnectedEndpoint {
  readonly ended: Promise<EndpointEnd>;
  /** Ends the endpoint as a gateway would. */
  end: (end: EndpointEnd) => void = () => {};

  constructor(
    readonly url: string,
    readonly request: EndpointRequest,
    readonly close: () => Promise<void>,
  ) {
    this.ended = new Promise((resolve) => {
      this.end = resolve;
    });
  }
}
