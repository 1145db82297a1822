import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Duplex } from 'node:stream';
import type { Channel, ChannelReceiver } from '../../agent-protocol/channel.ts';
import { Connection, type ConnectionUser } from '../../agent-protocol/connection.ts';
import { LARGEST_WINDOW } from '../../agent-protocol/growing-window.ts';
import { HeartbeatEcho, HeartbeatProbe } from '../../agent-protocol/heartbeat.ts';
import {
  AuthRequest,
  BindLabeledRequest,
  BindRequest,
  BulkRequest,
  PatchRequest,
  parseMessage,
  RequestsRequest,
  StreamType,
  streamPrefix,
  UnbindRequest,
} from '../../agent-protocol/messages.ts';
import { type RpcAnswer, type RpcFeed, type RpcRequest, RpcResponder } from '../../agent-protocol/rpc.ts';
import { RpcError } from '../../agent-protocol/rpc-error.ts';
import { TypedStream } from '../../agent-protocol/typed-stream.ts';
import type { IdSource } from '../../lib/ids.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import { type PendingConnection, PendingStage } from '../../lib/network/pending-connections.ts';
import type { Credential } from '../endpoints/endpoint-owner.ts';
import type { TrafficCounters } from '../metrics/traffic-counters.ts';
import type { AgentAccess } from './agent-access.ts';
import { AgentCommands } from './agent-commands.ts';
import { type AgentInfo, agentInfo } from './agent-info.ts';
import type { ListenerOwner } from './agent-listener.ts';
import type { AgentMemory } from './agent-memory.ts';
import { watchHeartbeats } from './heartbeat-timeout.ts';
import type { RefusalLog } from './refusal-log.ts';
import type { RequestTurns } from './request-turns.ts';
import { RequestsStreams } from './requests-stream.ts';
import { type Listener, SessionListeners, type SessionListenersDeps } from './session-listeners.ts';
import { SilenceWatch } from './silence-watch.ts';
import { StreamGate } from './stream-gate.ts';
import type { UselessFrames } from './useless-frames.ts';

/** What agents show of the service they are connected to. */
const GATEWAY = { Region: 'self-hosted', AccountName: 'device-agent gateway', PlanName: 'self-hosted', Banner: '' };

const AUTH_DEADLINE_MS = 10_000;
const PROBE_MS = 1_000;
/** How long an agent that has not authenticated may take to read the answer to its one request. */
const ANSWERED_MS = 2_000;
/** Limits of the request of an agent that has not authenticated. */
const AUTH_LIMITS = { bytes: 8192, values: 256 };

/** Endpoints of a session whose requests its agent may watch at a time. */
const MAX_FEEDS = 16;

export interface SessionDirectory {
  /**
   * Adds a session that has just authenticated, and ends older ones of the same agent.
   *
   * @throws {RpcError} at the session limit
   */
  add(session: AgentSession): void;
  /** Whether an agent can keep the id of an earlier session: well-formed and not in use by another credential. */
  mayKeep(id: string, credentialId: string): boolean;
  /** The session that a connection for bulk may belong to. */
  find(id: string, credentialId: string): AgentSession | undefined;
  /**
   * The connection of this session is to carry bulk streams of another one.
   *
   * @param credentialId id of the other one's authtoken
   * @throws {RpcError} at the limit on such connections
   */
  attach(session: AgentSession, credentialId: string): void;
  remove(session: AgentSession): void;
}

export interface AgentSessionDeps extends SessionListenersDeps {
  /** Connections to its upstreams at a time. */
  maxStreams: number;
  access: AgentAccess;
  counters: TrafficCounters;
  directory: SessionDirectory;
  ids: IdSource;
  address: string;
  refusals: RefusalLog;
  turns: RequestTurns;
  /** Of agents that have not authenticated. */
  strangerTurns: RequestTurns;
  uselessFrames: UselessFrames;
  memory: AgentMemory;
}

/** One connection of an agent, from the end of its TLS handshake. */
export class AgentSession implements ConnectionUser, ListenerOwner, PendingConnection {
  readonly gate: StreamGate;
  readonly commands: AgentCommands;
  readonly startedAt = new Date();
  readonly #deps: AgentSessionDeps;
  readonly #connection: Connection;
  readonly #listeners: SessionListeners;
  #probe: HeartbeatProbe | null = null;
  #id = '';
  /** Proves that a connection for bulk comes from the agent that started this session; null when it supports none. */
  #bulkSecret: string | null = null;
  #credential: Credential | null = null;
  #agent: AgentInfo | null = null;
  /** Whether it has sent the one request that it may send without a credential. */
  #asked = false;
  /** Whether that request is complete, and not yet answered. */
  #isWaiting = false;
  #ended = false;
  /** Whether it ended because the agent sent nothing more. */
  #fellSilent = false;
  #authTimer: NodeJS.Timeout | undefined;
  #stopHeartbeatTimeout = () => {};
  #silenceWatch: SilenceWatch | null = null;
  /** Null when the agent supports none. */
  #requests: RequestsStreams | null = null;

  constructor(socket: Duplex, deps: AgentSessionDeps) {
    this.#deps = deps;
    this.#connection = new Connection(socket, this);
    const gateUser = {
      beat: (ms: number) => this.#heartbeatProbe().ask(ms),
      onStuck: () => this.end(new Error('the agent accepts no connections')),
      onAbandoned: (streams: number) => this.#replaceExhausted(streams),
    };
    this.gate = new StreamGate(this.#connection, gateUser, deps.maxStreams);
    this.commands = new AgentCommands(this.#connection);
    this.#listeners = new SessionListeners(this, deps);
  }

  /** `ts_…`, the protocol's `ClientId`; agents keep it when they reconnect. Empty before authentication. */
  get id(): string {
    return this.#id;
  }

  get online(): boolean {
    return this.#credential !== null && !this.#ended;
  }

  get credential(): Credential {
    if (!this.#credential) throw new Error('the session has not authenticated');
    return this.#credential;
  }

  get agent(): AgentInfo {
    if (!this.#agent) throw new Error('the session has not authenticated');
    return this.#agent;
  }

  get address(): string {
    return this.#deps.address;
  }

  /** Endpoints and labelled tunnels of the session. */
  get listeners(): Iterable<Listener> {
    return this.#listeners.values();
  }

  /** Starts serving; ends the session when the agent does not authenticate in time. */
  start(): void {
    this.#endWithin(AUTH_DEADLINE_MS, 'authentication timed out');
    this.#connection.start();
  }

  end(reason: Error): void {
    this.#connection.close(reason);
  }

  /** Ends the session, so that the agent starts one with all its connections free. */
  #replaceExhausted(abandoned: number): void {
    const { counters, log, address } = this.#deps;
    const ofLane = ({ lane }: Listener) => [...lane.streams].filter(({ abandonedAt }) => abandonedAt !== null).length;
    const [most] = [...this.listeners].sort((a, b) => ofLane(b) - ofLane(a));
    const credential = this.#credential?.id;
    counters.sessionsExhausted += 1;
    log.warn(
      { session: this.#id, credential, address, abandoned, endpoint: most?.publicId, upstream: most?.forwardsTo },
      'session ended: an upstream keeps connections open that clients have left',
    );
    this.end(new Error('an upstream keeps connections open that clients have left'));
  }

  /**
   * Takes an endpoint or labelled tunnel offline and notifies the agent why.
   *
   * @param code `ERR_NGROK_…`
   */
  stopListener({ id }: Pick<Listener, 'id'>, message: string, code: string): void {
    this.#listeners.unbind(id, new Error(message));
    this.commands.stopTunnel(id, message, code);
  }

  /** For how many milliseconds nothing was heard of an agent that fell silent; 0 for all others. */
  get silentMs(): number {
    return this.#fellSilent ? performance.now() - this.#connection.lastReadAt : 0;
  }

  async isAlive(): Promise<boolean> {
    if (this.#ended) return false;
    const heardBefore = this.#connection.lastReadAt;
    const answered = await this.#heartbeatProbe().ask(PROBE_MS);
    return !this.#ended && (answered || this.#connection.lastReadAt > heardBefore);
  }

  /** How far it has come in authenticating; with an answer to another request, it is no further. */
  get stage(): PendingStage {
    if (this.#isWaiting) return PendingStage.waiting;
    return this.#connection.isSilent ? PendingStage.silent : PendingStage.begun;
  }

  sent(): void {
    this.#silenceWatch?.sent();
  }

  accept(channel: Channel): void {
    channel.receiver = new TypedStream(channel, (type) => this.#receiverFor(type, channel));
  }

  ended(reason: Error): void {
    this.#ended = true;
    clearTimeout(this.#authTimer);
    this.#stopHeartbeatTimeout();
    this.#silenceWatch?.stop();
    this.#listeners.unbindAll(reason);
    if (!this.#credential) return;
    this.#deps.directory.remove(this);
    this.#deps.log.info({ session: this.#id, reason: reason.message }, 'agent session ended');
  }

  #receiverFor(type: number, channel: Channel): ChannelReceiver {
    if (type === StreamType.heartbeat) return new HeartbeatEcho(channel);
    const report = (error: unknown) => this.#deps.log.error({ err: error, type }, 'agent request failed');
    const serve = (request: RpcRequest) => this.#serveInTurn(type, request, channel);
    if (this.#credential) return new RpcResponder(channel, serve, report);
    if (this.#asked) this.end(new Error('second request before authentication'));
    this.#asked = true;
    return new RpcResponder(channel, serve, report, AUTH_LIMITS);
  }

  async #serveInTurn(type: number, request: RpcRequest, channel: Channel): Promise<RpcAnswer | RpcFeed> {
    const { turns, strangerTurns, address } = this.#deps;
    const serve = () => this.#serveCounted(type, request, channel);
    const isOver = () => this.#ended;
    if (this.#credential) return turns.serve(this.#credential.id, request.size, serve, isOver);
    this.#isWaiting = true;
    try {
      return await strangerTurns.serve(clientNetwork(address), request.size, serve, isOver);
    } finally {
      this.#isWaiting = false;
    }
  }

  async #serveCounted(type: number, request: RpcRequest, channel: Channel): Promise<RpcAnswer | RpcFeed> {
    channel.isServed = true;
    try {
      const body = request.parse();
      if (type === StreamType.requests && this.#requests) return this.#report(this.#requests, body, channel);
      return await this.#serve(type, body, request.size);
    } catch (error) {
      if (type === StreamType.requests) channel.isServed = false;
      const { refusals, address } = this.#deps;
      const who = this.#credential ? { address, session: this.#id, credential: this.#credential.id } : { address };
      if (type === StreamType.auth) refusals.session(who, error);
      if (type === StreamType.bulk) refusals.bulk(who, error);
      if (type === StreamType.bind || type === StreamType.bindLabeled) refusals.endpoint(who, error);
      if (!this.#credential) this.#endWithin(ANSWERED_MS, 'the agent was refused');
      throw error;
    }
  }

  #endSilent(reason: string): void {
    this.#fellSilent = true;
    this.end(new Error(reason));
  }

  #endWithin(ms: number, reason: string): void {
    clearTimeout(this.#authTimer);
    this.#authTimer = setTimeout(() => this.end(new Error(reason)), ms).unref();
  }

  async #serve(type: number, body: unknown, size: number): Promise<RpcAnswer> {
    if (type === StreamType.serverInfo) {
      if (!this.#credential) this.#endWithin(ANSWERED_MS, 'the agent has not authenticated');
      return { body: { Region: GATEWAY.Region } };
    }
    if (type === StreamType.auth) return this.#authenticate(parseMessage(AuthRequest, body, 'ERR_NGROK_109'));
    if (type === StreamType.bulk) return this.#attach(parseMessage(BulkRequest, body, 'ERR_NGROK_109'));
    if (!this.#credential) throw new RpcError('ERR_NGROK_4018', 'the session has not authenticated');
    switch (type) {
      case StreamType.bind:
        return this.#listeners.bind(parseMessage(BindRequest, body, 'ERR_NGROK_301'), size);
      case StreamType.unbind:
        return this.#unbind(parseMessage(UnbindRequest, body, 'ERR_NGROK_301'));
      case StreamType.bindLabeled:
        return this.#listeners.bindLabeled(parseMessage(BindLabeledRequest, body, 'ERR_NGROK_301'), size);
      case StreamType.patchTunnel:
        return this.#listeners.update(parseMessage(PatchRequest, body, 'ERR_NGROK_301'), size);
      default:
        throw new RpcError('ERR_NGROK_332', `requests of type ${type} are not supported by this gateway`);
    }
  }

  #report(streams: RequestsStreams, body: unknown, channel: Channel): RpcFeed {
    return { receiver: streams.begin(channel, parseMessage(RequestsRequest, body, 'ERR_NGROK_301').Id) };
  }

  #unbind({ Id: id, Drain: drain }: UnbindRequest): RpcAnswer {
    const reason = new Error('unbound by the agent');
    if (drain) this.#listeners.drain(id, reason);
    else this.#listeners.unbind(id, reason);
    return { body: {} };
  }

  async #authenticate(request: AuthRequest): Promise<RpcAnswer> {
    if (this.#credential) throw new RpcError('ERR_NGROK_109', 'the session has already authenticated');
    const { Extra: extra } = request;
    const credential = await this.#deps.access.authenticate(extra.authtoken);
    if (this.#ended) throw new RpcError('ERR_NGROK_741', 'the session has ended');
    const { directory, ids } = this.#deps;
    this.#id = directory.mayKeep(request.ClientId, credential.id) ? request.ClientId : ids.next('ts');
    this.#agent = agentInfo(request);
    this.#credential = credential;
    try {
      directory.add(this);
    } catch (error) {
      this.#credential = null;
      throw error;
    }
    const { memory, uselessFrames, address } = this.#deps;
    this.#connection.trust(memory.ofSession(credential.id), uselessFrames.of(credential.id, address));
    clearTimeout(this.#authTimer);
    this.#stopHeartbeatTimeout = watchHeartbeats(
      { interval: extra.heartbeatinterval, tolerance: extra.heartbeattolerance },
      () => this.#connection.lastReadAt,
      () => this.#endSilent('heartbeat timed out'),
    );
    this.#silenceWatch = new SilenceWatch({
      lastReadAt: () => this.#connection.lastReadAt,
      ask: () => void this.#heartbeatProbe().ask(PROBE_MS),
      onSilence: () => this.#endSilent('the agent does not answer'),
    });
    const who = { session: this.#id, credential: credential.id, address: this.address };
    this.#deps.log.info({ ...who, agent: extra.clienttype, version: extra.version }, 'agent session online');
    const version = request.Version.includes('3') ? '3' : '2';
    const window = Math.min(extra.streamwindow, LARGEST_WINDOW);
    const shown = {
      ...GATEWAY,
      AgentSessionID: this.#id,
      ...(window > 0 && this.#extend(window)),
      ...(extra.requestfeed && this.#offerRequests()),
    };
    return { body: { Version: version, ClientId: this.#id, Extra: shown } };
  }

  /** The agent is of this project: returns what it is told. */
  #extend(window: number): object {
    this.#connection.extend(window);
    this.#bulkSecret = randomBytes(32).toString('base64url');
    return { StreamWindow: window, BulkSecret: this.#bulkSecret };
  }

  /** The agent may watch the requests to its endpoints: returns what it is told. */
  #offerRequests(): object {
    this.#requests = new RequestsStreams(MAX_FEEDS, (id) => this.#listeners.named(id));
    return { RequestFeed: true };
  }

  /** From now on, this connection carries bulk streams of another session of the same agent. */
  async #attach({ AuthToken, SessionId, Secret }: BulkRequest): Promise<RpcAnswer> {
    if (this.#credential) throw new RpcError('ERR_NGROK_109', 'the session has already authenticated');
    const { access, directory, log, address } = this.#deps;
    const credential = await access.authenticate(AuthToken);
    if (this.#ended) throw new RpcError('ERR_NGROK_741', 'the session has ended');
    const session = directory.find(SessionId, credential.id);
    if (!session?.admitsBulk(Secret)) throw new RpcError('ERR_NGROK_109', 'no session has this id and secret');
    directory.attach(this, credential.id);
    clearTimeout(this.#authTimer);
    session.#connection.attachBulk(this.#connection);
    session.#connection.moveBulk();
    log.debug({ session: SessionId, address }, 'connection for bulk attached');
    return { body: {} };
  }

  /** Whether the secret is this session's, so that a connection for bulk may be attached to it. */
  admitsBulk(secret: string): boolean {
    return this.online && this.#bulkSecret !== null && isSame(secret, this.#bulkSecret);
  }

  #heartbeatProbe(): HeartbeatProbe {
    if (this.#probe) return this.#probe;
    const channel = this.#connection.channel();
    channel.write(streamPrefix(StreamType.heartbeat));
    this.#probe = new HeartbeatProbe(channel);
    channel.receiver = this.#probe;
    this.#connection.open(channel);
    return this.#probe;
  }
}

/** Compares secrets in a time that says nothing about them. */
function isSame(one: string, other: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(one), digest(other));
}
