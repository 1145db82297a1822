import { EventEmitter, once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { createSecureContext, type SecureContext, type TLSSocket } from 'node:tls';
import type { BudgetReport, TimesAway } from '../../agent-protocol/messages.ts';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { ClientShares } from '../../lib/network/client-shares.ts';
import { isAt, listen } from '../../lib/network/listen.ts';
import { LoadBalancers } from '../../lib/network/load-balancers.ts';
import { PendingConnections, PendingHandshake } from '../../lib/network/pending-connections.ts';
import { systemClock } from '../../lib/time/clock.ts';
import { withDeadline } from '../../lib/time/deadline.ts';
import { noteArrival } from '../../lib/time/loop-turn.ts';
import type { ClientHello } from '../../lib/tls/client-hello.ts';
import { askedCas } from '../../lib/tls/pinned-chain.ts';
import { performHandshake } from '../../lib/tls/server-handshake.ts';
import type { SessionTickets } from '../../lib/tls/session-tickets.ts';
import { TLS_SERVER_OPTIONS } from '../../lib/tls/tls-options.ts';
import type { AgentLimits } from '../../settings/gateway-settings.ts';
import { SECOND_LINKS } from '../context/descriptor-shares.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import { EndOfSession } from '../endpoints/session-end.ts';
import type { DeviceRow } from '../store/devices.ts';
import { AGENT_LIMITS, AgentMemory, GlitchLimits, LoggedSessions, OptionBytes, RequestTurns } from './agent-limits.ts';
import { AgentLink, type LinkOptions, type SessionDirectory } from './agent-link.ts';
import type { AgentSession, SessionContext, SessionNode } from './agent-session.ts';
import type { AddressLeasing } from './endpoint-binder.ts';
import { FormerDeviceRefused, RefusalLog } from './refusal-log.ts';
import { SessionSet } from './session-set.ts';

/** Connections that have not authenticated, and as many with an unfinished handshake, whatever sessions there are. */
export const MAX_UNAUTHENTICATED = 256;
/**
 * When all agents come back at once, most of them wait for their handshakes: those that are refused would come again and again.
 * They take the descriptors of sessions that there can be besides those that there are: this share of them, and so many at most.
 */
const WAITING_SHARE = 1 / 2;
const MOST_WAITING = 4096;
/** Those that have had their turn, and need a round trip or two: a link may have one of a second. */
const UNDER_WAY_SHARE = 1 / 8;
const MOST_UNDER_WAY = 768;
/** Agents that find no place come back so much later, if they are this project's: a session ends seldom. */
const FULL_RETRY_AFTER_S = 30;
const SESSION_ID = /^ts_[0-9A-Za-z]{27}$/;
const HANDSHAKE_MS = 10_000;
/** Some 4,000 attempts to authenticate from one network at once: thousands of agents may share an address. */
const LOGIN_BURST_MS = 2000;
/** Longer than a connection waits before it destroys its socket. */
const STOP_MS = 2_000;
/** Between two sessions that end when the gateway is emptied: 50 a second reconnect elsewhere. */
const SHED_MS = 20;
/** Within this time, the other gateways know that this one is being emptied. */
const TOLD_MS = 3_000;
/** What clients have under way may take so long to end, if the agent has another session. */
const DRAIN_MS = 10_000;
/** The same when the gateway that has passed a session on stops: less than it waits for that. */
const RELEASE_MS = 1_300;
const RENEWAL_CHECK_MS = 60_000;

interface SessionEvents {
  added: [session: AgentSession];
  removed: [session: AgentSession];
  away: [session: AgentSession, times: TimesAway];
  budget: [session: AgentSession, budget: BudgetReport];
  /** With the device that is known to have tried. */
  refused: [device: string | null];
}

/** Other gateways, as far as they pass agents on. */
interface AgentRelays {
  /** Of the port of agents alone. */
  on(event: 'agents', listener: (agent: Socket) => void): unknown;
  /** A gateway stops that has passed agents on. */
  on(event: 'release', listener: (node: string) => void): unknown;
  /** The connection of an agent continues over TLS. */
  secured(agent: Socket, over: Socket): void;
  /** The gateway that has passed an agent on; undefined: it has come here itself. */
  passedOnBy(agent: Socket): string | undefined;
  /** @returns whether another gateway serves the agent, as this one is being emptied */
  passAgentOn(agent: Socket, port: 'agents'): boolean;
}

/** Accepts the connections of agents, and holds the sessions that have authenticated. Emits when one comes or goes. */
export class SessionServer extends EventEmitter<SessionEvents> implements SessionDirectory {
  readonly #server: Server;
  readonly #connected = new Set<AgentLink>();
  readonly #limits: AgentLimits;
  readonly #optionBytes: OptionBytes;
  readonly #refusals: RefusalLog;
  readonly #turns = new RequestTurns();
  readonly #loginTurns = new RequestTurns(systemClock, LOGIN_BURST_MS);
  readonly #glitches = new GlitchLimits();
  readonly #logged: LoggedSessions;
  readonly #memory: AgentMemory;
  readonly #unauthenticated: PendingConnections<AgentLink>;
  /** Those that wait for their handshakes, or have not sent their ClientHello. */
  readonly #waiting: PendingConnections<PendingHandshake>;
  readonly #handshaking: PendingConnections<PendingHandshake>;
  /** Those on the port for agents that have no TLS yet, or are passed on. */
  readonly #unsecured = new Set<Socket>();
  readonly #sessions = new SessionSet<AgentSession>();
  /** Links beyond the first, by the authtokens of their sessions. */
  readonly #attached = new Map<AgentLink, string>();
  readonly #attachedBy = new ClientShares<AgentLink>((credentialId) => credentialId);
  #stopped = false;
  #isDraining = false;
  /** By the ids of CAs; the first is for agents that ask for none. */
  #secureContexts: ReadonlyMap<string, SecureContext> = new Map();
  /** When the current certificate was issued, in Unix milliseconds. */
  #issuedAt = 0;
  #renewAt = 0;
  #ticketEpoch = '';
  #renewal: NodeJS.Timeout | undefined;

  constructor(
    private readonly context: SessionContext & {
      options: Pick<GatewayContext['options'], 'host' | 'sessionPort' | 'heldSockets'> & {
        agentLimits?: Partial<AgentLimits>;
      };
      shares: Pick<GatewayContext['shares'], 'sessions' | 'unauthenticated'>;
      balancers: GatewayContext['balancers'];
    },
    private readonly own: Pick<LinkOptions, 'access' | 'binder'> & {
      /**
       * Issues the certificates that agents see, of each CA: by its id, or else the first. Called again at `renewAt`, in Unix
       * milliseconds.
       */
      issueCertificates(): Promise<readonly { id: string; cert: string; key: string; renewAt: number }[]>;
      /** Omitted: of this process only. */
      tickets?: SessionTickets;
      leases: Pick<AddressLeasing, 'isIdOfOther'> | null;
      node: SessionNode | null;
      /** Null: this gateway is the only one. */
      relays: AgentRelays | null;
      /** Omitted: a share of the machine's memory. */
      memory?: AgentMemory;
    },
  ) {
    super();
    const { options, shares, log } = context;
    const least = Math.min(MAX_UNAUTHENTICATED, shares.unauthenticated);
    /** With a share of what sessions do not use yet. */
    const upTo = (most: number, share: number) => () =>
      least + Math.min(most, Math.max(0, Math.floor((this.#limits.sessions - this.#sessions.size) * share)));
    const reason = new Error('too many connections that have not authenticated');
    this.#unauthenticated = new PendingConnections(upTo(MOST_UNDER_WAY, UNDER_WAY_SHARE), (link) => link.end(reason));
    const drop = ({ socket }: PendingHandshake) => socket.destroy();
    this.#handshaking = new PendingConnections(upTo(MOST_UNDER_WAY, UNDER_WAY_SHARE), drop);
    this.#waiting = new PendingConnections(upTo(MOST_WAITING, WAITING_SHARE), drop);
    const limits = { ...AGENT_LIMITS, ...options.agentLimits };
    this.#limits = { ...limits, sessions: Math.min(limits.sessions, shares.sessions) };
    this.#optionBytes = new OptionBytes(this.#limits.optionBytes);
    this.#refusals = new RefusalLog(context);
    this.#logged = new LoggedSessions(log);
    this.#memory = own.memory ?? new AgentMemory();
    const identified = LoadBalancers.before(context.balancers, (socket) => this.#begin(socket));
    this.#server = createServer((socket) => {
      noteArrival();
      this.#hold(socket);
      identified(socket);
    });
  }

  /** How many sessions there can be, and what limits them. */
  get room(): { sessions: number; limitedBy: 'GATEWAY_MAX_SESSIONS' | 'memory' | 'file descriptors' } {
    const { options, shares } = this.context;
    const { sessions } = this.#limits;
    const isSet = options.agentLimits?.sessions !== undefined;
    if (sessions === shares.sessions) return { sessions, limitedBy: 'file descriptors' };
    return { sessions, limitedBy: isSet ? 'GATEWAY_MAX_SESSIONS' : 'memory' };
  }

  get sessions(): SessionSet<AgentSession> {
    return this.#sessions;
  }

  /** Starts the listener for agents, if a port is configured; returns the port. @throws the system's error */
  async start(): Promise<number | null> {
    const { options, log } = this.context;
    const { host, sessionPort: port, heldSockets: held = [] } = options;
    this.own.relays?.on('release', (node) => this.#release(node));
    if (port === null) return null;
    await this.renew();
    const chosen = await listen(this.#server, { host, port }, held);
    this.own.relays?.on('agents', (socket) => {
      this.#hold(socket);
      this.#begin(socket);
    });
    this.#renewal = setInterval(() => void this.#renewWhenDue(), RENEWAL_CHECK_MS).unref();
    this.#server.on('error', (error) => log.error({ err: error }, 'agent listener failed'));
    return chosen;
  }

  accept(socket: TLSSocket): void {
    if (this.#stopped || this.#isDraining) {
      socket.destroy();
      return;
    }
    const { access, binder, node, relays } = this.own;
    socket.setNoDelay(true);
    socket.setKeepAlive(true);
    const link = new AgentLink(socket, socket.remoteAddress ?? '', this.context, {
      ...{ access, binder, node },
      directory: this,
      maxListeners: this.#limits.endpoints,
      maxStreams: this.#limits.connections,
      optionBytes: this.#optionBytes,
      refusals: this.#refusals,
      turns: this.#turns,
      loginTurns: this.#loginTurns,
      glitches: this.#glitches,
      logged: this.#logged,
      memory: this.#memory,
      passedOnBy: relays?.passedOnBy(socket),
    });
    this.#connected.add(link);
    this.#unauthenticated.add(link);
    socket.once('close', () => {
      this.#connected.delete(link);
      this.#unauthenticated.delete(link);
      this.#detach(link);
    });
    link.start();
  }

  /** Takes no further agents, and ends the sessions one after another: agents come back at other gateways. */
  drain(): void {
    if (this.#isDraining) return;
    this.#isDraining = true;
    this.context.log.info({ sessions: this.#sessions.size }, 'gateway is being emptied');
    // A load balancer sees that the port is closed. One that the service manager holds stays open: connections would wait in it.
    const { host, sessionPort: port, heldSockets: held = [] } = this.context.options;
    const isHeld = port !== null && held.some((socket) => isAt(socket, { host, port }));
    if (this.#server.listening && !isHeld) this.#server.close();
    setTimeout(() => this.#shed([...this.#sessions]), TOLD_MS).unref();
  }

  #shed([session, ...rest]: readonly AgentSession[]): void {
    if (session === undefined || this.#stopped) return;
    const reason = new EndOfSession('gateway', 'the gateway is being emptied');
    if (this.own.node?.hasOther(session)) session.drain(reason, DRAIN_MS);
    else session.end(reason);
    setTimeout(() => this.#shed(rest), SHED_MS).unref();
  }

  get count(): number {
    return this.#sessions.size;
  }

  /** Ends sessions of agents that have one only, those with the fewest clients first: agents come back at any gateway. */
  move(most: number): number {
    // The native connector goes elsewhere without losing what clients have under way.
    const movable = [...this.#sessions].filter((one) => !one.keepsAnswers && !this.own.node?.hasOther(one));
    const chosen = movable.sort((one, other) => one.gate.streams - other.gate.streams).slice(0, most);
    const reason = new EndOfSession('gateway', 'the agent may go to a gateway that has fewer');
    for (const [at, session] of chosen.entries()) setTimeout(() => session.end(reason), at * SHED_MS).unref();
    return chosen.length;
  }

  /** Ends the sessions of agents that have another one at another gateway, once their clients have what they have under way. */
  handOver(): void {
    const { node } = this.own;
    const reason = new EndOfSession('gateway', 'the gateway is stopping');
    for (const session of this.#sessions) if (node?.hasOther(session)) session.drain(reason, DRAIN_MS);
  }

  /** Ends the sessions that a gateway has passed on to this one, as {@link handOver} does: their connections end with that gateway. */
  #release(node: string): void {
    const reason = new EndOfSession('gateway', 'the gateway that passed it on is stopping');
    const released = [...this.#connected].flatMap(({ passedOnBy, session }) =>
      passedOnBy === node ? (session ?? []) : [],
    );
    for (const session of new Set(released)) session.drain(reason, RELEASE_MS);
  }

  /** Accepts no further agents; sessions go on. */
  stopListening(): void {
    this.#server.close();
  }

  /** Stops listening and ends every session, within 2 s. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#renewal);
    const { listening } = this.#server;
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const link of [...this.#connected]) link.end(new EndOfSession('gateway', 'the gateway is stopping'));
    for (const socket of this.#unsecured) socket.destroy();
    if (listening) await withDeadline(closed, 'closing the sessions', STOP_MS);
  }

  add(session: AgentSession, link: AgentLink): void {
    // So that their endpoints are free.
    for (const older of this.#sessions.replacedBy(session))
      older.end(new EndOfSession('replaced', 'the agent has reconnected'));
    const { sessions: limit } = this.#limits;
    if (this.#sessions.size >= limit && !this.#makeRoom(session)) {
      const message = `session limit reached: the gateway has ${limit} sessions`;
      throw new RpcError('ERR_NGROK_348', message, { retryAfterS: FULL_RETRY_AFTER_S });
    }
    this.#unauthenticated.delete(link);
    this.#sessions.add(session);
    this.emit('added', session);
  }

  mayKeep(id: string, credentialId: string): boolean {
    if (!SESSION_ID.test(id) || this.own.leases?.isIdOfOther(id, credentialId)) return false;
    return [...this.#sessions.withId(id)].every(({ credential }) => credential.id === credentialId);
  }

  find(id: string, credentialId: string): AgentSession | undefined {
    return [...this.#sessions.withId(id)].find(({ credential }) => credential.id === credentialId);
  }

  /** An operator has changed something of the device with this authtoken: its agent learns what concerns it. */
  deviceChanged(credentialId: string, device: DeviceRow): void {
    for (const session of this.#sessions.ofCredential(credentialId)) session.deviceChanged(device);
  }

  attach(link: AgentLink, { credential: { id: credentialId }, hasSecondLink: isFurther }: AgentSession): void {
    const limit = Math.ceil(this.#limits.sessions * SECOND_LINKS);
    // Half of them are for second links, which help each session more than a third one.
    const isFull = this.#attached.size >= (isFurther ? limit / 2 : limit);
    if (isFull && (isFurther || !this.#detachOneFor(credentialId))) {
      throw new RpcError(
        'ERR_NGROK_348',
        `connection limit reached: the gateway has ${limit} further connections of sessions`,
      );
    }
    this.#unauthenticated.delete(link);
    this.#attached.set(link, credentialId);
    this.#attachedBy.add(credentialId, link);
  }

  #detachOneFor(credentialId: string): boolean {
    const links = [...this.#attachedBy.excessFor(credentialId)];
    const newest = links.findLast(({ isInUse }) => !isInUse) ?? links.at(-1);
    if (newest === undefined) return false;
    this.#detach(newest);
    newest.end(new Error('connection limit reached: its authtoken has more further connections than any other'));
    return true;
  }

  #detach(link: AgentLink): void {
    this.#attachedBy.delete(this.#attached.get(link), link);
    this.#attached.delete(link);
  }

  remove(session: AgentSession): void {
    if (this.#sessions.delete(session)) this.emit('removed', session);
  }

  refused(error: RpcError): void {
    this.emit('refused', error instanceof FormerDeviceRefused ? error.device.id : null);
  }

  wasAway(session: AgentSession, times: TimesAway): void {
    this.emit('away', session, times);
  }

  saidBudget(session: AgentSession, budget: BudgetReport): void {
    this.#sessions.noteBudget(session);
    this.emit('budget', session, budget);
  }

  #makeRoom(added: AgentSession): boolean {
    const newest = this.#sessions.newestOfLargestShare(added.credential.id);
    if (newest === null) return false;
    newest.end(new EndOfSession('limit', 'session limit reached: its authtoken has more sessions than any other'));
    return true;
  }

  #hold(socket: Socket): void {
    this.#unsecured.add(socket);
    socket.once('close', () => this.#unsecured.delete(socket));
  }

  #begin(socket: Socket): void {
    this.#secure(socket).catch((error: unknown) => {
      socket.destroy();
      this.context.log.error({ err: error }, 'agent connection failed');
    });
  }

  async #secure(socket: Socket): Promise<void> {
    socket.on('error', () => {});
    const handshake = new PendingHandshake(socket);
    this.#waiting.add(handshake);
    const startTimer = () => setTimeout(() => socket.destroy(), HANDSHAKE_MS);
    let timer = startTimer();
    let secured: TLSSocket | null;
    try {
      const hello = await handshake.readHello();
      clearTimeout(timer);
      if (hello !== null && this.own.relays?.passAgentOn(socket, 'agents')) return;
      secured = await performHandshake(
        socket,
        { secureContext: this.#contextFor(hello) },
        {
          isAgent: true,
          onBegin: () => {
            timer = startTimer();
            this.#waiting.delete(handshake);
            this.#handshaking.add(handshake);
            handshake.begins();
          },
          onError: (err) => this.context.log.debug({ err }, 'agent TLS handshake failed'),
        },
      );
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(handshake);
      this.#handshaking.delete(handshake);
    }
    if (!secured) return;
    this.#unsecured.delete(socket);
    this.own.relays?.secured(socket, secured);
    this.accept(secured);
  }

  #contextFor(hello: ClientHello | null): SecureContext | undefined {
    const contexts = this.#secureContexts;
    const asked = askedCas(hello?.protocols ?? []).find((id) => contexts.has(id));
    return asked === undefined ? [...contexts.values()][0] : contexts.get(asked);
  }

  /** Has new certificates issued: they are due, or the CA has changed. */
  async renew(): Promise<void> {
    const now = Date.now();
    const issued = await this.own.issueCertificates().catch((error: unknown) => {
      this.#renewAt = 0; // Those of before may be of a CA that has ended: tried again soon, whatever their dates.
      throw error;
    });
    const { tickets } = this.own;
    const contextOf = ({ cert, key }: { cert: string; key: string }) =>
      createSecureContext({ ...TLS_SERVER_OPTIONS, ...tickets?.options, cert, key });
    this.#secureContexts = new Map(issued.map((each) => [each.id, contextOf(each)]));
    this.#ticketEpoch = tickets?.epoch ?? '';
    this.#issuedAt = now;
    this.#renewAt = Math.min(...issued.map(({ renewAt }) => renewAt));
  }

  async #renewWhenDue(): Promise<void> {
    const now = Date.now();
    // A certificate issued while the clock was ahead may not be valid yet.
    const areTicketsCurrent = this.#ticketEpoch === (this.own.tickets?.epoch ?? '');
    if (this.#issuedAt <= now && now < this.#renewAt && areTicketsCurrent) return;
    try {
      await this.renew();
    } catch (error) {
      this.context.log.error({ err: error }, 'agent certificate not renewed; retrying in a minute');
    }
  }
}
