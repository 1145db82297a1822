import { EventEmitter } from 'node:events';
import type { TimesAway } from '../../agent-protocol/messages.ts';
import { Limiter } from '../../lib/limiter.ts';
import { hostPort } from '../../lib/network/ip-address.ts';
import type { AgentContext } from '../context/agent-context.ts';
import type { ConnectedEndpoint, Connector, ConnectorEvents, EndpointRequest, SessionStatus } from './connector.ts';
import { isOffline, offline } from './gateway-error.ts';
import type { GatewayLink, GatewaySession } from './gateway-link.ts';
import { findRoute } from './route-watch.ts';
import { SecondSession } from './second-session.ts';
import { SessionSupervisor } from './session-supervisor.ts';
import { SpreadEndpoint } from './spread-endpoint.ts';

/** Endpoints bound concurrently in a second session. */
const MAX_BINDING = 16;

/**
 * Keeps a session with a gateway, over the link that it is given, and a second one with another gateway where there are
 * several. Every endpoint is bound in both.
 */
export class GatewayConnector extends EventEmitter<ConnectorEvents> implements Connector {
  #link: GatewayLink | null = null;
  #supervisor: SessionSupervisor | null = null;
  #second: SecondSession | null = null;
  /** Those that are online. */
  readonly #sessions = new Set<GatewaySession>();
  /** Those that are bound in all of them. */
  readonly #spread = new Set<SpreadEndpoint>();
  readonly #limiter = new Limiter(MAX_BINDING);
  /** The status until the supervisor starts. */
  #status: SessionStatus;

  /** @param gateway its name until the link to it is open */
  constructor(
    private readonly context: Pick<AgentContext, 'clock' | 'log'>,
    gateway: string,
    private readonly openLink: () => Promise<GatewayLink>,
  ) {
    super();
    this.#status = { state: 'connecting', since: new Date(), gateway, reconnects: 0, lastError: null };
  }

  get isOnline(): boolean {
    return this.#sessions.size > 0;
  }

  get status(): SessionStatus {
    const status = this.#supervisor?.status ?? this.#status;
    if (status.state === 'stopped' || !this.isOnline) return status;
    const secondGateway = this.#second?.gateway;
    return { ...status, state: 'online', ...(secondGateway && { secondGateway }) };
  }

  /** Milliseconds since the supervisor last made progress, online or not; 0 before it starts. */
  get silentMs(): number {
    return this.#link?.progress.silentMs ?? 0;
  }

  /** Connects, and reconnects until stop(); throws what opening the link throws. */
  async start(): Promise<void> {
    const { openLink, context } = this;
    const { clock, log } = context;
    const link = await openLink();
    // Stopped meanwhile.
    if (this.#status.state === 'stopped') return link.close();
    const { address, probe, connect, connectTo, progress } = link;
    this.#link = link;
    this.#supervisor = new SessionSupervisor({
      gateway: hostPort(address.host, address.port),
      probe,
      connect,
      findRoute,
      online: (session) => {
        this.#joined(session);
        this.#second?.follow(session);
      },
      offline: (session) => {
        this.#second?.follow(null);
        this.#left(session);
      },
      routeChanged: (reason) => this.#second?.session?.end(reason),
      clock,
      // The gateway may change it.
      get isMetered() {
        return link.isMetered?.() === true;
      },
      progress,
      log,
    });
    if (connectTo) {
      const ends = {
        joined: (session: GatewaySession) => this.#joined(session),
        left: (session: GatewaySession) => this.#left(session),
      };
      this.#second = new SecondSession({
        connectTo,
        ...ends,
        isReserve: () => link.isMetered?.() === true,
        clock,
        log,
      });
    }
    link.onLinkChanged?.(() => this.#second?.look());
    this.#supervisor.start();
  }

  async open(request: EndpointRequest): Promise<ConnectedEndpoint> {
    const [session, other] = this.#sessions;
    if (!session) throw offline(this.status.lastError?.message ?? this.status.state);
    if (!other) return this.#openIn(session, request);
    try {
      return await this.#openIn(session, request);
    } catch (error) {
      // It was lost, or its gateway is being emptied.
      if (isOffline(error)) return this.#openIn(other, request);
      throw error;
    }
  }

  /** Tells a gateway what was counted while there was no session. @returns false: none takes such reports now @throws its refusal */
  async reportAway(times: TimesAway): Promise<boolean> {
    const takes = [...this.#sessions].find(({ reportAway }) => reportAway !== undefined);
    await takes?.reportAway?.(times);
    return takes !== undefined;
  }

  async #openIn(session: GatewaySession, request: EndpointRequest): Promise<ConnectedEndpoint> {
    const endpoint = await session.open(request);
    if (!session.node) return endpoint;
    const { clock, log } = this.context;
    const spread: SpreadEndpoint = new SpreadEndpoint(endpoint, session, {
      request,
      isOnline: (one) => this.#sessions.has(one),
      inTurn: (bind) => this.#limiter.run(bind),
      onOver: () => this.#spread.delete(spread),
      ...{ clock, log },
    });
    this.#spread.add(spread);
    for (const each of this.#sessions) spread.bindIn(each);
    return spread;
  }

  #joined(session: GatewaySession): void {
    this.#sessions.add(session);
    if (this.#sessions.size === 1) this.emit('online');
    else for (const endpoint of this.#spread) endpoint.bindIn(session);
  }

  #left(session: GatewaySession): void {
    this.#sessions.delete(session);
    if (this.#sessions.size === 0) this.emit('offline');
  }

  async stop(): Promise<void> {
    this.#status = { ...this.#status, state: 'stopped', since: new Date() };
    await Promise.all([this.#supervisor?.stop(), this.#second?.stop()]);
    this.#link?.close();
  }
}
