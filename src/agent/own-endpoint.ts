import type { Clock } from '../lib/clock.ts';
import { Limiter } from '../lib/limiter.ts';
import type { Log } from '../lib/log.ts';
import type { Connector } from './connectors/connector.ts';
import type { TunnelStatus } from './tunnels/tunnel.ts';
import { TunnelSupervisor } from './tunnels/tunnel-supervisor.ts';

export interface OwnEndpointOptions {
  connector: Connector;
  domain: string;
  /** Unix socket on which the API is served to callers from outside. */
  socket: string;
  clock: Clock;
  log: Log;
}

/** Keeps the agent's own API reachable on the agent's domain, the way a tunnel is kept up, but as none of the tunnels. */
export class OwnEndpoint {
  readonly #keeper: TunnelSupervisor;

  constructor(private readonly options: OwnEndpointOptions) {
    const { connector, domain, clock, log } = options;
    const tunnel = {
      id: 'agent',
      protocol: 'http',
      forwards_to: 'device-agent',
      domain,
      url: `https://${domain}`,
      policy: null,
      created_at: new Date().toISOString(),
    } as const;
    this.#keeper = new TunnelSupervisor(tunnel, {
      opener: { open: () => this.#open() },
      session: () => connector.status,
      limiter: new Limiter(1),
      clock,
      log,
      save: async () => {},
      changed: () => this.#changed(),
    });
  }

  /** The public URL; its port is known once it is bound. */
  get url(): string {
    return this.#keeper.url;
  }

  /** Where the API has to be served for it. */
  get socket(): string {
    return this.options.socket;
  }

  get status(): TunnelStatus {
    return this.#keeper.status;
  }

  start(): void {
    const { connector } = this.options;
    connector.on('online', () => this.#keeper.sessionOnline());
    connector.on('offline', () => this.#keeper.sessionLost());
    this.#keeper.keep();
  }

  /** Its endpoint goes with the session. */
  stop(): void {
    this.#keeper.abandon();
  }

  async #open() {
    const { connector, domain, socket } = this.options;
    const endpoint = await connector.open({
      protocol: 'http',
      domain,
      forwardTo: `unix:${socket}`,
      forwardsTo: 'device-agent',
    });
    return { endpoint, close: () => endpoint.close(), release: async () => {} };
  }

  #changed(): void {
    if (this.status.state !== 'online') return;
    this.options.log.info({ url: this.url }, 'the API is reachable on the agent’s own domain');
  }
}
