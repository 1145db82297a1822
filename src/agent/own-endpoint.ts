import { connect } from 'node:net';
import { Limiter } from '../lib/limiter.ts';
import type { ConnectedEndpoint, Connector } from './connectors/connector.ts';
import type { AgentContext } from './context/agent-context.ts';
import type { TunnelStatus } from './tunnels/tunnel.ts';
import { TunnelSupervisor } from './tunnels/tunnel-supervisor.ts';

/** Keeps the agent's API online at the agent's own domain, like a tunnel that is not listed. */
export class OwnEndpoint {
  readonly #supervisor: TunnelSupervisor;

  constructor(
    private readonly context: Pick<AgentContext, 'clock' | 'log'>,
    private readonly own: {
      connector: Connector;
      domain: string;
      /** Unix socket on which the API answers remote callers. */
      socket: string;
    },
  ) {
    const { connector, domain } = own;
    const tunnel = {
      id: 'agent',
      protocol: 'http',
      forwards_to: 'device-agent',
      domain,
      url: `https://${domain}`,
      policy: null,
      created_at: new Date().toISOString(),
    } as const;
    this.#supervisor = new TunnelSupervisor(tunnel, context, {
      open: () => this.#open(),
      connector,
      limiter: new Limiter(1),
      save: async () => {},
      changed: () => this.#changed(),
    });
  }

  /** The public URL; its port is known once it is bound. */
  get url(): string {
    return this.#supervisor.url;
  }

  get socket(): string {
    return this.own.socket;
  }

  get status(): TunnelStatus {
    return this.#supervisor.status;
  }

  start(): void {
    const { connector } = this.own;
    connector.on('online', () => this.#supervisor.sessionOnline());
    connector.on('offline', () => this.#supervisor.sessionLost());
    this.#supervisor.start();
  }

  stop(): void {
    this.#supervisor.stop();
  }

  #open(): Promise<ConnectedEndpoint> {
    const { connector, domain, socket } = this.own;
    return connector.open({
      protocol: 'http',
      domain,
      upstream: {
        connect: async () => connect({ path: socket, allowHalfOpen: true }),
        address: async () => `unix:${socket}`,
      },
      forwardsTo: 'device-agent',
      isOwn: true,
    });
  }

  #changed(): void {
    if (this.status.state !== 'online') return;
    this.context.log.info({ url: this.url }, 'remote API online');
  }
}
