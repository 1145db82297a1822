import { EventEmitter } from 'node:events';
import { hostPort } from '../../lib/proxy-rules.ts';
import type { Connector, Endpoint, EndpointRequest, SessionStatus } from './connector.ts';
import { type GatewayLink, type GatewayLinkOptions, openGatewayLink } from './gateway-link.ts';
import { offline } from './sdk-error.ts';
import { SessionSupervisor } from './session-supervisor.ts';

export type NgrokConnectorOptions = GatewayLinkOptions;

/** The connection to a gateway by way of the ngrok SDK. */
export class NgrokConnector extends EventEmitter<{ online: []; offline: [] }> implements Connector {
  readonly #supervisor: SessionSupervisor;
  readonly #link: GatewayLink;

  /** @throws Error when the SDK cannot read the server address */
  constructor(options: NgrokConnectorOptions) {
    super();
    const { clock, log } = options;
    this.#link = openGatewayLink(options);
    const { address, probe, connect, pulse } = this.#link;
    this.#supervisor = new SessionSupervisor({
      gateway: hostPort(address),
      probe,
      connect,
      online: () => void this.emit('online'),
      offline: () => void this.emit('offline'),
      clock,
      pulse,
      log,
    });
  }

  get status(): SessionStatus {
    return this.#supervisor.status;
  }

  /** Milliseconds since the keeping of the session last made a step, online or not. */
  get silentMs(): number {
    return this.#link.pulse.silentMs;
  }

  start(): void {
    this.#supervisor.start();
  }

  async open(request: EndpointRequest): Promise<Endpoint> {
    const { session, status } = this.#supervisor;
    if (!session) throw offline(status.lastError?.message ?? status.state);
    return session.open(request);
  }

  async stop(): Promise<void> {
    await this.#supervisor.stop();
    this.#link.close();
  }
}
