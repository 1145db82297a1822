import { EventEmitter } from 'node:events';
import type { Log } from '../../lib/log/log.ts';
import { hostPort } from '../../lib/network/ip-address.ts';
import type { Clock } from '../../lib/time/clock.ts';
import type { Connector, Endpoint, EndpointRequest, SessionStatus } from './connector.ts';
import { offline } from './gateway-error.ts';
import type { GatewayLink } from './gateway-link.ts';
import { findRoute } from './route-watch.ts';
import { SessionSupervisor } from './session-supervisor.ts';

export interface GatewayConnectorOptions {
  /** Name of the gateway until the link to it is open. */
  gateway: string;
  openLink: () => Promise<GatewayLink>;
  clock: Clock;
  log: Log;
}

/** Keeps one session with a gateway, over the link that it is given. */
export class GatewayConnector extends EventEmitter<{ online: []; offline: [] }> implements Connector {
  #link: GatewayLink | null = null;
  #supervisor: SessionSupervisor | null = null;
  /** The status until the supervisor starts. */
  #status: SessionStatus;

  constructor(private readonly options: GatewayConnectorOptions) {
    super();
    const { gateway } = options;
    this.#status = { state: 'connecting', since: new Date(), gateway, reconnects: 0, lastError: null };
  }

  get status(): SessionStatus {
    return this.#supervisor?.status ?? this.#status;
  }

  /** Milliseconds since the supervisor last made progress, online or not; 0 before it starts. */
  get silentMs(): number {
    return this.#link?.progress.silentMs ?? 0;
  }

  /** Connects, and reconnects until stop(); throws what opening the link throws. */
  async start(): Promise<void> {
    const { openLink, clock, log } = this.options;
    const link = await openLink();
    // Stopped meanwhile.
    if (this.#status.state === 'stopped') return link.close();
    const { address, probe, connect, progress } = link;
    this.#link = link;
    this.#supervisor = new SessionSupervisor({
      gateway: hostPort(address.host, address.port),
      probe,
      connect,
      findRoute,
      online: () => void this.emit('online'),
      offline: () => void this.emit('offline'),
      clock,
      progress,
      log,
    });
    this.#supervisor.start();
  }

  async open(request: EndpointRequest): Promise<Endpoint> {
    const session = this.#supervisor?.session;
    if (!session) throw offline(this.status.lastError?.message ?? this.status.state);
    return session.open(request);
  }

  async stop(): Promise<void> {
    this.#status = { ...this.#status, state: 'stopped', since: new Date() };
    await this.#supervisor?.stop();
    this.#link?.close();
  }
}
