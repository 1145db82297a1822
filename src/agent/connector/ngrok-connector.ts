import { EventEmitter } from 'node:events';
import type { Connector, Endpoint, EndpointRequest, SessionStatus } from './connector.ts';
import { type GatewayLinkOptions, openGatewayLink } from './gateway-link.ts';
import type { Pulse } from './pulse.ts';
import { offline } from './sdk-error.ts';
import { SessionSupervisor } from './session-supervisor.ts';

export type NgrokConnectorOptions = GatewayLinkOptions;

/** The connection to a gateway by way of the ngrok SDK. */
export class NgrokConnector extends EventEmitter<{ online: []; offline: [] }> implements Connector {
  readonly #supervisor: SessionSupervisor;
  readonly #pulse: Pulse;

  /** @throws Error when the SDK cannot read the server address */
  constructor(options: NgrokConnectorOptions) {
    super();
    const { clock, log } = options;
    const { gateway, probe, connect, pulse } = openGatewayLink(options);
    this.#pulse = pulse;
    this.#supervisor = new SessionSupervisor({
      gateway,
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
    return this.#pulse.silentMs;
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
  }
}
