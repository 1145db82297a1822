import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Channel, ChannelReceiver } from '../../agent-protocol/channel.ts';
import type { Connection } from '../../agent-protocol/connection.ts';
import { LARGEST_WINDOW } from '../../agent-protocol/credit-window.ts';
import { LinkBundle, MOST_LINKS } from '../../agent-protocol/link-bundle.ts';
import {
  type AuthRequest,
  BindLabeledRequest,
  BindRequest,
  BudgetReport,
  PaceRequest,
  PatchRequest,
  parseMessage,
  RequestsRequest,
  StreamType,
  TimesAway,
  UnbindRequest,
  UpstreamState,
} from '../../agent-protocol/messages.ts';
import { type RpcAnswer, RpcError, type RpcFeed, type RpcRequest, RpcResponder } from '../../agent-protocol/rpc.ts';
import { ApiError, messageOf } from '../../lib/errors.ts';
import type { MemoryBudget } from '../../lib/memory-budget.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { OwnerCredential } from '../endpoints/endpoint-owner.ts';
import { EndOfSession, type SessionEnd, sessionEndOf } from '../endpoints/session-end.ts';
import type { DeviceRow } from '../store/devices.ts';
import { AgentCommands } from './agent-commands.ts';
import type { AgentInfo } from './agent-info.ts';
import type { AgentMemory, GlitchLimits, LoggedSessions, OptionBytes, RequestTurns } from './agent-limits.ts';
import type { ListenerOwner } from './agent-listener.ts';
import type { EndpointBinder } from './endpoint-binder.ts';
import type { RefusalLog } from './refusal-log.ts';
import { RequestsStreams } from './requests-stream.ts';
import { type Listener, SessionListeners } from './session-listeners.ts';
import { StreamGate } from './stream-gate.ts';

/** What agents show of the service they are connected to. */
export const GATEWAY = {
  Region: 'self-hosted',
  AccountName: 'device-agent gateway',
  PlanName: 'self-hosted',
  Banner: '',
};

/** Endpoints of a session whose requests its agent may watch at a time. */
const MAX_FEEDS = 16;
/** Milliseconds that the second link of an agent that closes none stays without streams of clients. */
const LINK_IDLE_MS = 60_000;
/** A session that drains ends after so many milliseconds at the earliest. */
const LEAST_DRAIN_MS = 500;
const DRAIN_CHECK_MS = 50;
/** An agent that does not answer on one link is stalled when it has said nothing on any for so many milliseconds. */
const SILENT_MS = 2_000;
/** The longest pause between heartbeats that is granted: a session whose agent is gone ends soon after. */
const MOST_PACE_MS = 75_000;

export type SessionContext = Pick<GatewayContext, 'store' | 'counters' | 'activity' | 'log'>;

/** What the sessions of a gateway share, besides its context. */
export interface SessionOptions {
  binder: EndpointBinder;
  /** Endpoints and labelled tunnels of a session. */
  maxListeners: number;
  optionBytes: OptionBytes;
  /** Connections to its upstreams at a time. */
  maxStreams: number;
  directory: {
    remove(session: AgentSession): void;
    wasAway(session: AgentSession, times: TimesAway): void;
    saidBudget(session: AgentSession, budget: BudgetReport): void;
  };
  refusals: RefusalLog;
  turns: RequestTurns;
  /** Of agents that have not authenticated. */
  loginTurns: RequestTurns;
  glitches: GlitchLimits;
  logged: LoggedSessions;
  memory: AgentMemory;
  /** Null: this gateway is the only one. */
  node: SessionNode | null;
}

/** This gateway among those of a cluster, as agents see it. */
export interface SessionNode {
  readonly id: string;
  /** Addresses of those that take agents, `host:port`. */
  others(): string[];
  /** Whether the agent of a session has another one at a gateway that takes agents. */
  hasOther(session: Pick<AgentSession, 'id' | 'credential'>): boolean;
  /** The server name of agents' connections to their HTTPS ports. */
  readonly serverName: string;
}

export interface SessionLink {
  readonly connection: Connection;
  readonly address: string;
  /** For how many milliseconds nothing was heard of an agent that fell silent; 0 if it ended otherwise. */
  readonly silentMs: number;
  /** Whether the agent has been asked for something, and has not answered for two seconds. */
  readonly isStalled: boolean;
  /** From now on, it ends when the agent is silent for longer than it has announced. */
  watch(heartbeats: { interval: number; tolerance: number }): void;
  /** From now on, heartbeats are so many milliseconds apart, but closer while clients wait. */
  keepTo(intervalMs: number): void;
  /** @returns whether the agent echoed a heartbeat within `ms`, and so has read all that was sent before it */
  beat(ms: number): Promise<boolean>;
  isAlive(): Promise<boolean>;
  end(reason: Error): void;
}

type Announced = Omit<AuthRequest['Extra'], 'authtoken'>;

interface AgentIdentity {
  /** `ts_…`, the protocol's `ClientId`; agents keep it when they reconnect. */
  id: string;
  credential: OwnerCredential;
  agent: AgentInfo;
  announced: Announced;
  /** Whether its begin and its end are logged. */
  isLogged: boolean;
}

/**
 * The session of an agent. It has one link to the agent, or several: new streams of clients take the link with the least bytes
 * on their way. Everything else travels on the first. The session lives as long as one of them.
 */
export class AgentSession implements ListenerOwner {
  readonly id: string;
  readonly credential: OwnerCredential;
  readonly agent: AgentInfo;
  readonly address: string;
  readonly gate: StreamGate;
  readonly commands: AgentCommands;
  readonly startedAt = new Date();
  readonly #isLogged: boolean;
  readonly #listeners: SessionListeners;
  readonly #announced: Announced;
  readonly #memory: MemoryBudget;
  readonly #largestWindow: number;
  readonly #requests: RequestsStreams;
  /** In the order in which they came. */
  readonly #links: SessionLink[];
  readonly #bundle: LinkBundle;
  /** How many links it may have. */
  readonly #mostLinks: number;
  /** Links that were added so far. */
  #added = 0;
  /** When a stream was last opened on the second link, in milliseconds of `performance.now()`. */
  #secondUsedAt = 0;
  #idleTimer: NodeJS.Timeout | undefined;
  /** Each proves that a further link comes from the agent of this session, once. The newest ones count. */
  readonly #tickets: string[] = [];
  #budget: (BudgetReport & { at: number }) | null = null;
  /** The last message to the agent about its link. */
  #metered: boolean | null = null;
  #ended = false;
  #isDraining = false;
  /** Whether its agent has said that it leaves. */
  #isLeaving = false;
  #endedBy: SessionEnd = 'lost';

  constructor(
    link: SessionLink,
    { id, credential, agent, announced, isLogged }: AgentIdentity,
    private readonly context: SessionContext,
    private readonly own: SessionOptions,
  ) {
    this.id = id;
    this.credential = credential;
    this.agent = agent;
    this.address = link.address;
    this.#links = [link];
    this.#announced = announced;
    this.#isLogged = isLogged;
    this.#memory = own.memory.ofSession(credential.id);
    this.#largestWindow = Math.min(announced.streamwindow, LARGEST_WINDOW);
    this.#mostLinks = this.#mayHaveTwoLinks ? Math.max(2, Math.min(announced.links, MOST_LINKS)) : 1;
    const bundleUser = {
      ask: async (connection: Connection, ms: number) => (await this.#linkOf(connection)?.beat(ms)) ?? false,
      // Of all agents: it says nothing about this one.
      sentAgain: async () => null,
      // The agent sees parts come, and opens them.
      wantsLinks: () => {},
    };
    this.#bundle = new LinkBundle(bundleUser, () => this.#mostLinks);
    this.#bundle.add(0, link.connection);
    const listeners = new SessionListeners(this, context.log, own);
    const gateUser = {
      get hasSeveral() {
        return listeners.size > 1;
      },
      link: () => this.#noteUse(this.#bundle.freest(this.#first.connection)),
      beat: (ms: number) => this.#first.beat(ms),
      onStuck: () => this.end(new EndOfSession('faulty', 'the agent accepts no connections')),
      onAbandoned: (streams: number) => this.#replaceExhausted(streams),
    };
    this.gate = new StreamGate(gateUser, own.maxStreams);
    this.commands = new AgentCommands(
      () => this.#first.connection,
      () => this.end(new EndOfSession('silent', 'a command to the agent was lost')),
    );
    this.#listeners = listeners;
    this.#requests = new RequestsStreams(MAX_FEEDS, (named) => this.#listeners.named(named));
  }

  get #first(): SessionLink {
    return this.#links[0] as SessionLink;
  }

  #linkOf(connection: Connection): SessionLink | undefined {
    return this.#links.find((link) => link.connection === connection);
  }

  /** Why it has ended. */
  get endedBy(): SessionEnd {
    return this.#endedBy;
  }

  get online(): boolean {
    return !this.#ended;
  }

  /** Whether it takes no further requests. */
  get isLeaving(): boolean {
    return this.#isDraining || this.#isLeaving;
  }

  get listeners(): Iterable<Listener> {
    return this.#listeners.values();
  }

  /** Starts serving on the link that it has authenticated on; returns what the agent is told. */
  start(): object {
    this.#adopt(this.#first);
    this.#metered = this.context.store.devices.ofAuthtoken(this.credential.id)?.metered ?? null;
    return {
      ...(this.keepsAnswers && this.#metered !== null && { Metered: this.#metered }),
      ...(!this.#announced.shortanswers && { ...GATEWAY, AgentSessionID: this.id }),
      ...(this.#largestWindow > 0 && { StreamWindow: this.#largestWindow }),
      ...(this.#mayHaveTwoLinks && { SecondLink: true }),
      ...(this.#mostLinks > 2 && { Links: this.#mostLinks }),
      // A transfer would be before it when the agent asks for it. On a metered link, there is no second one.
      ...(this.#mostLinks > 2 && this.link !== 'metered' && { Ticket: this.#newTicket() }),
      ...(this.#announced.requestfeed && { RequestFeed: true }),
      ...(this.#announced.upstreamstates && { UpstreamStates: true }),
      ...(this.#announced.timesaway && { TimesAway: true }),
      ...(this.#announced.heartbeatpace && { HeartbeatPace: true }),
      ...(this.#announced.databudgets && { DataBudgets: true }),
      ...(this.#announced.nodes && this.own.node && { Node: this.own.node.id }),
    };
  }

  /** Whether the ticket is the session's, so that a further link may be attached to it. It is valid once. */
  redeem(ticket: string): boolean {
    const at = this.#ended ? -1 : this.#tickets.findIndex((one) => isSame(ticket, one));
    if (at < 0) return false;
    this.#tickets.splice(at, 1);
    return true;
  }

  /** Whether a further link would be more than the second one. */
  get hasSecondLink(): boolean {
    return this.#links.length > 1;
  }

  /**
   * The number of a further link: its agent gives it where both sides support several.
   * @throws {RpcError} when another link has it
   */
  numberFor(given: number): number {
    this.#added += 1;
    const number = this.#mostLinks > 2 ? given : this.#added;
    if (number === 0 || this.#bundle.has(number))
      throw new RpcError('ERR_NGROK_109', 'the session has a link with this number');
    return number;
  }

  /**
   * Adds a link. When there are enough, the one that has been silent for longest ends: its agent has given it up.
   * @param number as {@link numberFor} says
   */
  attach(link: SessionLink, number: number): void {
    if (this.#links.length >= this.#mostLinks) {
      const heardAt = ({ connection }: SessionLink) => connection.lastReadAt;
      const silent = this.#links.reduce((least, other) => (heardAt(other) < heardAt(least) ? other : least));
      silent.end(new Error('another link was opened'));
    }
    this.#adopt(link);
    this.#links.push(link);
    this.#bundle.add(number, link.connection);
    this.#secondUsedAt = performance.now();
    if (this.#mostLinks === 2) this.#idleTimer ??= setInterval(() => this.#endIdleLink(), LINK_IDLE_MS).unref();
  }

  /** A transfer goes on over the link. */
  carriesBulk(link: SessionLink, isSent: boolean): void {
    if (isSent) void this.#bundle.carriesBulk(link.connection);
  }

  /** Whether something of a client is on its way there. */
  uses({ connection }: SessionLink): boolean {
    return this.gate.carries(connection) || this.#bundle.isUsed(connection);
  }

  /** The agent would close the link: from now on, nothing new is sent there. */
  #leaveLink(link: SessionLink): RpcAnswer {
    if (link === this.#first || this.gate.carries(link.connection) || !this.#bundle.leave(link.connection))
      throw new RpcError('ERR_NGROK_109', 'the link is in use');
    return { body: {} };
  }

  /** The link has ended, and with it its streams. */
  lost(link: SessionLink, reason: Error): void {
    const { directory } = this.own;
    const { log } = this.context;
    this.#bundle.delete(link.connection);
    // The last one says for how long it was silent.
    if (this.#links.length > 1) {
      this.#links.splice(this.#links.indexOf(link), 1);
      // The agent may have been about to close the one that is the first now.
      this.#bundle.stay(this.#first.connection);
      log.debug({ session: this.id, reason: reason.message }, 'one of several connections lost');
      return;
    }
    clearInterval(this.#idleTimer);
    this.#ended = true;
    const end = sessionEndOf(reason);
    this.#endedBy = end === 'lost' && this.#isLeaving ? 'stopped' : end;
    const { streams } = this.gate;
    this.#listeners.lose(reason);
    directory.remove(this);
    if (this.#isLogged) log.info({ session: this.id, reason: reason.message, streams }, 'agent session ended');
  }

  end(reason: Error): void {
    for (const link of [...this.#links]) link.end(reason);
  }

  /** Opens no further streams, and ends once those of clients have ended, or after so many milliseconds. */
  drain(reason: Error, ms: number): void {
    this.#isDraining = true;
    this.#listeners.retireAll();
    const began = performance.now();
    // Not at once: a client may have been sent here, and have no stream yet.
    const timer = setInterval(() => {
      const age = performance.now() - began;
      if ((age < LEAST_DRAIN_MS || (this.gate.isInUse && age < ms)) && !this.#ended) return;
      clearInterval(timer);
      this.end(reason);
    }, DRAIN_CHECK_MS).unref();
  }

  /** Ends the session, so that the agent starts one with all its connections free. */
  #replaceExhausted(abandoned: number): void {
    const { counters, log } = this.context;
    const ofLane = ({ lane }: Listener) => [...lane.streams].filter(({ leftAt }) => Number.isFinite(leftAt)).length;
    const [most] = [...this.listeners].sort((a, b) => ofLane(b) - ofLane(a));
    const who = { session: this.id, credential: this.credential.id, address: this.address };
    counters.sessionsExhausted += 1;
    if (this.#isLogged)
      log.warn(
        { ...who, abandoned, endpoint: most?.publicId, upstream: most?.forwardsTo },
        'session ended: an upstream keeps connections open that clients have left',
      );
    this.end(new EndOfSession('faulty', 'an upstream keeps connections open that clients have left'));
  }

  stopListener({ id }: Pick<Listener, 'id'>, message: string, code: string): void {
    this.#listeners.unbind(id, new Error(message));
    this.commands.stopTunnel(id, message, code);
  }

  get takesShortAnswers(): boolean {
    return this.#announced.shortanswers;
  }

  get takesWarnings(): boolean {
    return this.#announced.policywarnings;
  }

  /** The native connector does, and it alone announces this. */
  get keepsAnswers(): boolean {
    return this.#announced.refusedanswers;
  }

  answerRefused({ id }: Pick<Listener, 'id'>, reason: string): void {
    if (this.#announced.refusedanswers) this.commands.refusedAnswer(id, reason);
  }

  /** For how many milliseconds nothing was heard of an agent that fell silent, on the last link; 0 for all others. */
  get silentMs(): number {
    return this.#ended ? this.#first.silentMs : 0;
  }

  /** Whether the agent does not answer on one link, and has said nothing on the others either. */
  get isStalled(): boolean {
    if (!this.#links.some(({ isStalled }) => isStalled)) return false;
    const since = performance.now() - SILENT_MS;
    return this.#links.every(({ connection }) => connection.lastReadAt < since);
  }

  async isAlive(): Promise<boolean> {
    const answers = await Promise.all(this.#links.map((link) => link.isAlive()));
    return answers.includes(true);
  }

  receiverFor(type: number, channel: Channel, link: SessionLink): ChannelReceiver {
    if (type === StreamType.part && this.#mostLinks > 2) return this.#bundle.accept(channel, link.connection);
    const report = (error: unknown) => this.context.log.error({ err: error, type }, 'agent request failed');
    const serve = (request: RpcRequest) => this.#serveInTurn(type, request, channel, link);
    return new RpcResponder(channel, serve, report);
  }

  #serveInTurn(type: number, request: RpcRequest, channel: Channel, link: SessionLink): Promise<RpcAnswer | RpcFeed> {
    const serve = () => this.#serveCounted(type, request, channel, link);
    // The stream ends with its link, though the session may go on.
    const isOver = () => channel.closed;
    return this.own.turns.serve(this.credential.id, request.size, serve, isOver);
  }

  async #serveCounted(
    type: number,
    request: RpcRequest,
    channel: Channel,
    link: SessionLink,
  ): Promise<RpcAnswer | RpcFeed> {
    const { refusals } = this.own;
    channel.isServed = true;
    try {
      const body = request.parse();
      if (type === StreamType.requests && this.#announced.requestfeed) return this.#report(body, channel);
      if (type === StreamType.linkEnd && this.#mostLinks > 2) return this.#leaveLink(link);
      if (type === StreamType.pace && this.#announced.heartbeatpace)
        return this.#pace(parseMessage(PaceRequest, body, 'ERR_NGROK_301'), link);
      return await this.#serve(type, body, request.size);
    } catch (error) {
      if (type === StreamType.requests) channel.isServed = false;
      const who = { address: this.address, session: this.id, credential: this.credential.id };
      if (type === StreamType.auth) refusals.session(who, error);
      if (type === StreamType.bind || type === StreamType.bindLabeled) refusals.endpoint(who, error);
      throw error;
    }
  }

  async #serve(type: number, body: unknown, size: number): Promise<RpcAnswer> {
    switch (type) {
      case StreamType.serverInfo:
        return { body: { Region: GATEWAY.Region } };
      case StreamType.auth:
      case StreamType.link:
        throw new RpcError('ERR_NGROK_109', 'the session has already authenticated');
      case StreamType.bind:
        return this.#listeners.bind(parseMessage(BindRequest, body, 'ERR_NGROK_301'), size);
      case StreamType.unbind:
        return this.#unbind(parseMessage(UnbindRequest, body, 'ERR_NGROK_301'));
      case StreamType.bindLabeled:
        return this.#listeners.bindLabeled(parseMessage(BindLabeledRequest, body, 'ERR_NGROK_301'), size);
      case StreamType.patchTunnel:
        return this.#listeners.update(parseMessage(PatchRequest, body, 'ERR_NGROK_301'), size);
      case StreamType.upstreamState:
        if (!this.#announced.upstreamstates) break;
        this.#listeners.noteUpstream(parseMessage(UpstreamState, body, 'ERR_NGROK_301'));
        return { body: {} };
      case StreamType.timesAway:
        if (!this.#announced.timesaway) break;
        this.own.directory.wasAway(this, parseMessage(TimesAway, body, 'ERR_NGROK_301'));
        return { body: {} };
      case StreamType.dataBudget:
        if (!this.#announced.databudgets) break;
        return this.#noteBudget(parseMessage(BudgetReport, body, 'ERR_NGROK_301'));
      case StreamType.linkTicket:
        if (this.#mayHaveTwoLinks) return { body: { Ticket: this.#newTicket() } };
        break;
      case StreamType.otherNodes:
        if (this.own.node) return { body: { Nodes: this.own.node.others(), Name: this.own.node.serverName } };
    }
    throw new RpcError('ERR_NGROK_332', `requests of type ${type} are not supported by this gateway`);
  }

  #report(body: unknown, channel: Channel): RpcFeed {
    return { receiver: this.#requests.begin(channel, parseMessage(RequestsRequest, body, 'ERR_NGROK_301').Id) };
  }

  #unbind({ Id: id, Drain: drain }: UnbindRequest): RpcAnswer {
    const reason = new Error('unbound by the agent');
    // Only an agent that stops lets go of its endpoints in this way.
    this.#isLeaving ||= drain;
    if (drain) this.#listeners.drain(id, reason);
    // This project's native connector says when it leaves.
    else this.#listeners.unbind(id, reason, this.keepsAnswers ? null : 'leaving');
    return { body: {} };
  }

  /** Whether the agent supports it. Other agents take a session's connection for the session. */
  get #mayHaveTwoLinks(): boolean {
    return this.#announced.secondlink && this.#largestWindow > 0;
  }

  #noteBudget(budget: BudgetReport): RpcAnswer {
    this.#budget = { ...budget, at: performance.now() };
    this.own.directory.saidBudget(this, budget);
    if (budget.RetryAfterS === 0) return { body: {} };
    // Connections to upstreams wait for the next request, and would serve it.
    for (const { id, lane } of this.#listeners.values()) {
      if (budget.Exempt.includes(id)) continue;
      for (const stream of [...lane.streams]) stream.cut(budgetUsedUp(budget.RetryAfterS));
    }
    return { body: {} };
  }

  /** How much of its data budget the device has used, in percent; null: it has said nothing of one. */
  get budgetPercent(): number | null {
    return this.#budget?.UsedPercent ?? null;
  }

  /** An operator says whether the link is metered; null: the device does. Only this project's native connector follows. */
  deviceChanged({ metered }: Pick<DeviceRow, 'metered'>): void {
    if (metered === this.#metered || !this.keepsAnswers || this.#ended) return;
    this.#metered = metered;
    this.commands.setLink(metered).catch((error: unknown) => {
      this.context.log.debug({ session: this.id, reason: messageOf(error) }, 'link not changed');
    });
  }

  get link(): 'default' | 'metered' | null {
    if (!this.keepsAnswers) return null;
    return ((this.hasBudget ? null : this.#metered) ?? this.#announced.metered) ? 'metered' : 'default';
  }

  get hasBudget(): boolean {
    return this.#announced.databudgets;
  }

  hasDataFor(id: string): boolean {
    return this.#budget === null || this.#budget.RetryAfterS === 0 || this.#budget.Exempt.includes(id);
  }

  refuseStream(id: string): void {
    if (this.#budget === null || this.hasDataFor(id)) return;
    const passedS = Math.floor((performance.now() - this.#budget.at) / 1000);
    throw budgetUsedUp(Math.max(1, this.#budget.RetryAfterS - passedS));
  }

  /** Of the link that the request came on: the agent leaves others, which carry bulk, as they are. */
  #pace({ IntervalMs: wanted }: PaceRequest, link: SessionLink): RpcAnswer {
    const intervalMs = Math.min(wanted, MOST_PACE_MS);
    link.keepTo(intervalMs);
    return { body: { IntervalMs: intervalMs } };
  }

  #newTicket(): string {
    const ticket = randomBytes(32).toString('base64url');
    this.#tickets.push(ticket);
    if (this.#tickets.length >= this.#mostLinks) this.#tickets.shift();
    return ticket;
  }

  /** The link shares the session's limits and memory. */
  #adopt(link: SessionLink): void {
    link.connection.trust(this.#memory, this.own.glitches.of(this.credential.id, link.address));
    if (this.#largestWindow > 0) link.connection.extend(this.#largestWindow);
    link.watch({ interval: this.#announced.heartbeatinterval, tolerance: this.#announced.heartbeattolerance });
  }

  #noteUse(connection: Connection): Connection {
    if (connection !== this.#first.connection) this.#secondUsedAt = performance.now();
    return connection;
  }

  #endIdleLink(): void {
    const link = this.#links[1];
    if (link === undefined || performance.now() - this.#secondUsedAt < LINK_IDLE_MS) return;
    if (!this.gate.carries(link.connection)) link.end(new Error('the second link was idle'));
  }
}

function budgetUsedUp(retryAfter: number): ApiError {
  const message = `The device is on a data budget, which is used up. Its tunnels are paused for ${periodText(retryAfter)}.`;
  return new ApiError(503, 'ERR_GATEWAY_DATA_BUDGET', message, { retryAfter });
}

function periodText(seconds: number): string {
  const [unit, count] =
    seconds < 7_200
      ? ['minutes', seconds / 60]
      : seconds < 172_800
        ? ['hours', seconds / 3_600]
        : ['days', seconds / 86_400];
  const whole = Math.ceil(Number(count));
  // Of hours and days, there are two at least.
  return `${whole} ${whole === 1 ? 'minute' : unit}`;
}

/** Compares secrets in a time that says nothing about them. */
function isSame(one: string, other: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(one), digest(other));
}
