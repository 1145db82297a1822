import type { Duplex } from 'node:stream';
import type { Channel, ChannelReceiver } from '../../agent-protocol/channel.ts';
import { Connection, type ConnectionUser } from '../../agent-protocol/connection.ts';
import { HeartbeatEcho, HeartbeatProbe } from '../../agent-protocol/heartbeat.ts';
import {
  AuthRequest,
  type BudgetReport,
  LinkRequest,
  parseMessage,
  StreamType,
  streamPrefix,
  type TimesAway,
} from '../../agent-protocol/messages.ts';
import { type RpcAnswer, RpcError, type RpcRequest, RpcResponder, TypedStream } from '../../agent-protocol/rpc.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import { type PendingConnection, PendingStage } from '../../lib/network/pending-connections.ts';
import type { OwnerCredential } from '../endpoints/endpoint-owner.ts';
import { EndOfSession } from '../endpoints/session-end.ts';
import { agentInfo } from './agent-info.ts';
import { AgentSession, GATEWAY, type SessionContext, type SessionLink, type SessionOptions } from './agent-session.ts';
import { watchPaced } from './paced-watch.ts';

export interface AgentAccess {
  /** @throws {RpcError} when the authtoken is unknown, revoked or missing, or the agent's address is not allowed */
  authenticate(authtoken: string, remoteAddress: string): Promise<OwnerCredential>;
}

const AUTH_DEADLINE_MS = 10_000;
const PROBE_MS = 1_000;
/** How long an agent that has not authenticated may take to read the answer to its one request. */
const ANSWERED_MS = 2_000;
const AUTH_LIMITS = { bytes: 8192, values: 256 };

export interface SessionDirectory {
  /** Adds a session that has just authenticated, and ends older ones of the agent. @throws {RpcError} at the limit */
  add(session: AgentSession, link: AgentLink): void;
  /** Whether an agent can keep the id of an earlier session: well-formed and not in use by another credential. */
  mayKeep(id: string, credentialId: string): boolean;
  find(id: string, credentialId: string): AgentSession | undefined;
  /** Makes the link a further one of a session. @throws {RpcError} at the limit on such links */
  attach(link: AgentLink, session: AgentSession): void;
  remove(session: AgentSession): void;
  /** An agent was refused. */
  refused(error: RpcError): void;
  /** Its agent says what it has counted while it had no session. */
  wasAway(session: AgentSession, times: TimesAway): void;
  /** Its agent says how its data budget is. */
  saidBudget(session: AgentSession, budget: BudgetReport): void;
}

export interface LinkOptions extends SessionOptions {
  access: AgentAccess;
  directory: SessionDirectory;
  /** The gateway that has passed it on; left out: none has. */
  passedOnBy?: string | undefined;
}

/** One connection of an agent, from the end of its TLS handshake. It starts a session, or becomes a further link of one. */
export class AgentLink implements SessionLink, ConnectionUser, PendingConnection {
  readonly connection: Connection;
  /** Null before it has authenticated. */
  #session: AgentSession | null = null;
  #probe: HeartbeatProbe | null = null;
  /** Whether it has sent the one request that it may send before. */
  #asked = false;
  /** Whether that request is complete, and not yet answered. */
  #isWaiting = false;
  #ended = false;
  /** Whether it ended because the agent sent nothing more. */
  #fellSilent = false;
  #authTimer: NodeJS.Timeout | undefined;
  #stopHeartbeatTimeout = () => {};
  #silenceWatch: SilenceWatch | null = null;

  constructor(
    socket: Duplex,
    readonly address: string,
    private readonly context: SessionContext,
    private readonly own: LinkOptions,
  ) {
    this.connection = new Connection(socket, this);
  }

  /** Starts serving; closes the connection when the agent does not authenticate in time. */
  start(): void {
    this.#endWithin(AUTH_DEADLINE_MS, 'authentication timed out');
    this.connection.start();
  }

  end(reason: Error): void {
    this.connection.close(reason);
  }

  get session(): AgentSession | null {
    return this.#session;
  }

  get passedOnBy(): string | undefined {
    return this.own.passedOnBy;
  }

  /** How far it has come in authenticating; with an answer to another request, it is no further. */
  get stage(): PendingStage {
    if (this.#isWaiting) return PendingStage.waiting;
    return this.connection.isSilent ? PendingStage.silent : PendingStage.begun;
  }

  get silentMs(): number {
    return this.#fellSilent ? performance.now() - this.connection.lastReadAt : 0;
  }

  watch(heartbeats: { interval: number; tolerance: number }): void {
    clearTimeout(this.#authTimer);
    const { connection } = this;
    const onTimeout = () => this.#endSilent('heartbeat timed out');
    this.#stopHeartbeatTimeout = watchHeartbeats(heartbeats, connection, onTimeout);
    this.#silenceWatch = new SilenceWatch({
      connection,
      ask: () => void this.beat(PROBE_MS),
      onSilence: () => this.#endSilent('the agent does not answer'),
    });
  }

  keepTo(intervalMs: number): void {
    if (this.#ended) return;
    this.#stopHeartbeatTimeout();
    this.#stopHeartbeatTimeout = watchPaced(intervalMs, this.connection, {
      ask: () => void this.beat(PROBE_MS),
      onTimeout: (reason) => this.#endSilent(reason),
    });
  }

  sent(): void {
    this.#silenceWatch?.sent();
  }

  get isStalled(): boolean {
    return this.#silenceWatch?.isStalled ?? false;
  }

  beat(ms: number): Promise<boolean> {
    if (this.#probe === null) {
      const channel = this.connection.channel();
      channel.write(streamPrefix(StreamType.heartbeat));
      this.#probe = new HeartbeatProbe(channel);
      channel.receiver = this.#probe;
      this.connection.open(channel);
    }
    return this.#probe.ask(ms);
  }

  async isAlive(): Promise<boolean> {
    if (this.#ended) return false;
    const heardBefore = this.connection.lastReadAt;
    const answered = await this.beat(PROBE_MS);
    return !this.#ended && (answered || this.connection.lastReadAt > heardBefore);
  }

  carriesBulk(isSent: boolean): void {
    this.#session?.carriesBulk(this, isSent);
  }

  /** Whether something of a client is on its way here. */
  get isInUse(): boolean {
    return this.#session?.uses(this) ?? false;
  }

  accept(channel: Channel): void {
    channel.receiver = new TypedStream(channel, (type) => this.#receiverFor(type, channel));
  }

  ended(reason: Error): void {
    this.#ended = true;
    clearTimeout(this.#authTimer);
    this.#stopHeartbeatTimeout();
    this.#silenceWatch?.stop();
    this.#session?.lost(this, reason);
  }

  #receiverFor(type: number, channel: Channel): ChannelReceiver {
    if (type === StreamType.heartbeat) return new HeartbeatEcho(channel);
    if (this.#session) return this.#session.receiverFor(type, channel, this);
    if (this.#asked) this.end(new Error('second request before authentication'));
    this.#asked = true;
    const report = (error: unknown) => this.context.log.error({ err: error, type }, 'agent request failed');
    const serve = (request: RpcRequest) => this.#serveInTurn(type, request, channel);
    return new RpcResponder(channel, serve, report, AUTH_LIMITS);
  }

  async #serveInTurn(type: number, request: RpcRequest, channel: Channel): Promise<RpcAnswer> {
    const serve = () => this.#logIn(type, request, channel);
    const isOver = () => this.#ended;
    this.#isWaiting = true;
    try {
      return await this.own.loginTurns.serve(clientNetwork(this.address), request.size, serve, isOver);
    } finally {
      this.#isWaiting = false;
    }
  }

  async #logIn(type: number, request: RpcRequest, channel: Channel): Promise<RpcAnswer> {
    const { refusals } = this.own;
    channel.isServed = true;
    try {
      const body = request.parse();
      if (type === StreamType.serverInfo) return this.#showServer();
      if (type === StreamType.auth) return await this.#authenticate(parseMessage(AuthRequest, body, 'ERR_NGROK_109'));
      if (type === StreamType.link) return await this.#join(parseMessage(LinkRequest, body, 'ERR_NGROK_109'));
      throw new RpcError('ERR_NGROK_4018', 'the session has not authenticated');
    } catch (error) {
      if (type === StreamType.auth) {
        refusals.session({ address: this.address }, error);
        if (error instanceof RpcError) this.own.directory.refused(error);
      }
      if (type === StreamType.link) refusals.link({ address: this.address }, error);
      this.#endWithin(ANSWERED_MS, 'the agent was refused');
      throw error;
    }
  }

  #showServer(): RpcAnswer {
    this.#endWithin(ANSWERED_MS, 'the agent has not authenticated');
    return { body: { Region: GATEWAY.Region } };
  }

  #endSilent(reason: string): void {
    this.#fellSilent = true;
    this.end(new EndOfSession('silent', reason));
  }

  #endWithin(ms: number, reason: string): void {
    clearTimeout(this.#authTimer);
    this.#authTimer = setTimeout(() => this.end(new Error(reason)), ms).unref();
  }

  async #authenticate(request: AuthRequest): Promise<RpcAnswer> {
    const { store, log } = this.context;
    const { access, directory } = this.own;
    const { authtoken, ...announced } = request.Extra;
    const credential = await access.authenticate(authtoken, this.address);
    if (this.#ended) throw new RpcError('ERR_NGROK_741', 'the session has ended');
    const id = directory.mayKeep(request.ClientId, credential.id) ? request.ClientId : store.ids.next('ts');
    const isLogged = this.own.logged.take(credential.id);
    const agent = agentInfo(request);
    const session = new AgentSession(this, { id, credential, agent, announced, isLogged }, this.context, this.own);
    directory.add(session, this);
    this.#session = session;
    const who = { session: id, credential: credential.id, address: this.address };
    if (isLogged) log.info({ ...who, agent: announced.clienttype, version: announced.version }, 'agent session online');
    const version = request.Version.includes('3') ? '3' : '2';
    return { body: { Version: version, ClientId: id, Extra: session.start() } };
  }

  /** From now on, this connection is a further link of a session of the same agent. */
  async #join({ AuthToken, SessionId, Ticket, Link }: LinkRequest): Promise<RpcAnswer> {
    const { log } = this.context;
    const { access, directory } = this.own;
    const credential = await access.authenticate(AuthToken, this.address);
    if (this.#ended) throw new RpcError('ERR_NGROK_741', 'the session has ended');
    const session = directory.find(SessionId, credential.id);
    if (!session?.redeem(Ticket)) throw new RpcError('ERR_NGROK_109', 'no session has this id and ticket');
    const number = session.numberFor(Link);
    directory.attach(this, session);
    session.attach(this, number);
    this.#session = session;
    log.debug({ session: SessionId, address: this.address }, 'further connection attached');
    return { body: {} };
  }
}

interface Heard {
  /** When the last bytes arrived, in milliseconds of `performance.now()`; any frame counts. */
  readonly lastReadAt: number;
}

/** An agent can ask for more; this bounds how long a dead session stays online, in milliseconds. */
const MAX_TIMEOUT_MS = 600_000;
/** Tolerated delay beyond what the agent itself tolerates. */
const SLACK_MS = 1_000;

/** Detects agents whose heartbeats stop: after `close()`, `@ngrok/ngrok` 1.7.0 just falls silent. Returns the stop. */
export function watchHeartbeats(
  agreed: { interval: number; tolerance: number },
  connection: Heard,
  onTimeout: () => void,
): () => void {
  const timeoutMs = Math.min(agreed.interval + agreed.tolerance + SLACK_MS, MAX_TIMEOUT_MS);
  let timer: NodeJS.Timeout | undefined;
  let immediate: NodeJS.Immediate | undefined;
  const left = () => connection.lastReadAt + timeoutMs - performance.now();
  const check = () => {
    const ms = left();
    if (ms > 0) timer = setTimeout(check, ms).unref();
    // Timers run before sockets are read: after a stall, heartbeats may still wait there.
    else immediate = setImmediate(judge);
  };
  const judge = () => {
    if (left() > 0) check();
    else onTimeout();
  };
  check();
  return () => {
    clearTimeout(timer);
    clearImmediate(immediate);
  };
}

/** Agents credit what they read at once: after so many milliseconds without any bytes of theirs, they are asked for some. */
const ASK_MS = 1_000;
/** After so many more without an answer, requests go to another session of the device, if it has one. */
const STALLED_MS = 1_000;
/** The session ends after so many without an answer: below the heartbeat of SDKs (10 s), and above the pauses of mobile links. */
const ANSWER_MS = 7_000;

/**
 * Detects agents that answer nothing while clients wait: they lost power, or `@ngrok/ngrok` 1.7.0 has closed its session,
 * which keeps the socket. Their heartbeats are missed only later. Nothing runs while nothing is sent.
 */
export class SilenceWatch {
  #timer: NodeJS.Timeout | undefined;
  #immediate: NodeJS.Immediate | undefined;
  /** When the first bytes were sent since the last ones arrived. */
  #unansweredSince = 0;
  /** When the agent was last asked. */
  #askedAt = Number.NEGATIVE_INFINITY;
  #isStalled = false;

  constructor(
    private readonly own: {
      readonly connection: Heard;
      /** Sends something that every live agent answers. */
      ask(): void;
      /** The agent does not answer. Not called again. */
      onSilence(): void;
    },
  ) {}

  /** Whether the agent has not answered for long enough to try another session, but is not given up yet. */
  get isStalled(): boolean {
    return this.#isStalled && this.own.connection.lastReadAt < this.#askedAt;
  }

  sent(): void {
    if (this.#unansweredSince <= this.own.connection.lastReadAt) this.#unansweredSince = performance.now();
    if (this.#timer === undefined && this.#immediate === undefined) this.#wait(ASK_MS, () => this.#ask());
  }

  stop(): void {
    clearTimeout(this.#timer);
    clearImmediate(this.#immediate);
  }

  #ask(): void {
    if (this.own.connection.lastReadAt >= this.#unansweredSince) return;
    const early = this.#unansweredSince + ASK_MS - performance.now();
    if (early > 0) {
      this.#wait(early, () => this.#ask());
      return;
    }
    this.#askedAt = performance.now();
    this.#wait(STALLED_MS, () => this.#judge());
    this.own.ask();
  }

  #judge(): void {
    // Timers run before sockets are read: after a stall, an answer may still wait there.
    this.#immediate = setImmediate(() => {
      this.#immediate = undefined;
      this.#isStalled = this.own.connection.lastReadAt < this.#askedAt;
      if (!this.#isStalled) this.#ask();
      else if (performance.now() - this.#askedAt >= ANSWER_MS) this.own.onSilence();
      else this.#wait(STALLED_MS, () => this.#judge());
    });
  }

  #wait(ms: number, then: () => void): void {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      then();
    }, ms).unref();
  }
}
