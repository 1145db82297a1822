import { EventEmitter } from 'node:events';
import type { Clock } from '../../../lib/clock.ts';
import { hostPort } from '../../../lib/ip-address.ts';
import type { Log } from '../../../lib/log.ts';
import type { Connector, Endpoint, EndpointRequest, SessionStatus } from '../connector.ts';
import { SessionSupervisor } from '../session-supervisor.ts';
import type { GatewayLink } from './gateway-link.ts';
import { offline } from './sdk-error.ts';

export interface NgrokConnectorOptions {
  /** What the gateway is called until there is a link to it. */
  gateway: string;
  /** Finds the way to the gateway; that may take a while. */
  openLink: () => Promise<GatewayLink>;
  clock: Clock;
  log: Log;
}

/** The connection to a gateway by way of the ngrok SDK. */
export class NgrokConnector extends EventEmitter<{ online: []; offline: [] }> implements Connector {
  #link: GatewayLink | null = null;
  #supervisor: SessionSupervisor | null = null;
  /** For as long as there is no supervisor that knows better. */
  #status: SessionStatus;

  constructor(private readonly options: NgrokConnectorOptions) {
    super();
    const { gateway } = options;
    this.#status = { state: 'connecting', since: new Date(), gateway, reconnects: 0, lastError: null };
  }

  get status(): SessionStatus {
    return this.#supervisor?.status ?? this.#status;
  }

  /** Milliseconds since the keeping of the session last made a step, online or not; 0 before it began. */
  get silentMs(): number {
    return this.#link?.pulse.silentMs ?? 0;
  }

  /**
   * Starts connecting and keeps at it until stop().
   *
   * @throws what opening the link throws
   */
  async start(): Promise<void> {
    const { openLink, clock, log } = this.options;
    const link = await openLink();
    // Stopped meanwhile.
    if (this.#status.state === 'stopped') return link.close();
    const { address, probe, connect, pulse } = link;
    this.#link = link;
    this.#supervisor = new SessionSupervisor({
      gateway: hostPort(address.host, address.port),
      probe,
      connect,
      online: () => void this.emit('online'),
      offline: () => void this.emit('offline'),
      clock,
      pulse,
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
