import type { Duplex } from 'node:stream';
import type { Channel, ChannelReceiver } from '../../agent-protocol/channel.ts';
import { Connection, type ConnectionUser, MAX_INBOUND } from '../../agent-protocol/connection.ts';
import { HeartbeatEcho, HeartbeatProbe } from '../../agent-protocol/heartbeat.ts';
import {
  AuthRequest,
  BindLabeledRequest,
  BindRequest,
  PatchRequest,
  parseMessage,
  StreamType,
  streamPrefix,
  UnbindRequest,
} from '../../agent-protocol/messages.ts';
import { type RpcAnswer, RpcResponder } from '../../agent-protocol/rpc.ts';
import { RpcError } from '../../agent-protocol/rpc-error.ts';
import { TypedStream } from '../../agent-protocol/typed-stream.ts';
import type { IdSource } from '../../lib/ids.ts';
import type { Credential } from '../endpoints/endpoint-owner.ts';
import type { AgentAccess } from './agent-access.ts';
import { AgentCommands } from './agent-commands.ts';
import { type AgentInfo, agentInfo } from './agent-info.ts';
import type { ListenerOwner } from './agent-listener.ts';
import { watchHeartbeats } from './heartbeat-timeout.ts';
import type { RefusalLog } from './refusal-log.ts';
import { type Listener, SessionListeners, type SessionListenersDeps } from './session-listeners.ts';
import { StreamGate } from './stream-gate.ts';

/** What agents show of the service they are connected to. */
const GATEWAY = { Region: 'self-hosted', AccountName: 'device-agent gateway', PlanName: 'self-hosted', Banner: '' };

const AUTH_DEADLINE_MS = 10_000;
const PROBE_MS = 1_000;
/** Limits for connections that have not authenticated: bytes kept for a stream, and streams. */
const MAX_AUTH_BODY = 65_536;
const MAX_AUTH_STREAMS = 4;

export interface SessionDirectory {
  /**
   * Adds a session that has just authenticated, and ends older ones of the same agent.
   *
   * @throws {RpcError} at the session limit
   */
  add(session: AgentSession): void;
  /** Whether an agent can keep the id of an earlier session: well-formed and not in use by another credential. */
  mayKeep(id: string, credentialId: string): boolean;
  remove(session: AgentSession): void;
}

export interface AgentSessionDeps extends SessionListenersDeps {
  access: AgentAccess;
  directory: SessionDirectory;
  ids: IdSource;
  address: string;
  refusals: RefusalLog;
}

/** One connection of an agent, from the end of its TLS handshake. */
export class AgentSession implements ConnectionUser, ListenerOwner {
  readonly gate: StreamGate;
  readonly commands: AgentCommands;
  readonly startedAt = new Date();
  readonly #deps: AgentSessionDeps;
  readonly #connection: Connection;
  readonly #listeners: SessionListeners;
  #probe: HeartbeatProbe | null = null;
  #id = '';
  #credential: Credential | null = null;
  #agent: AgentInfo | null = null;
  #authenticating = false;
  #ended = false;
  #authTimer: NodeJS.Timeout | undefined;
  #stopHeartbeatTimeout = () => {};

  constructor(socket: Duplex, deps: AgentSessionDeps) {
    this.#deps = deps;
    this.#connection = new Connection(socket, this);
    this.#connection.maxInbound = MAX_AUTH_STREAMS;
    this.gate = new StreamGate(this.#connection);
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
    this.#authTimer = setTimeout(() => this.end(new Error('authentication timed out')), AUTH_DEADLINE_MS).unref();
    this.#connection.start();
  }

  end(reason: Error): void {
    this.#connection.close(reason);
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

  async isAlive(): Promise<boolean> {
    if (this.#ended) return false;
    const heardBefore = this.#connection.lastReadAt;
    const answered = await this.#heartbeatProbe().ask(PROBE_MS);
    return !this.#ended && (answered || this.#connection.lastReadAt > heardBefore);
  }

  accept(channel: Channel): void {
    channel.receiver = new TypedStream(channel, (type) => this.#receiverFor(type, channel));
  }

  ended(reason: Error): void {
    this.#ended = true;
    clearTimeout(this.#authTimer);
    this.#stopHeartbeatTimeout();
    this.#listeners.unbindAll(reason);
    if (!this.#credential) return;
    this.#deps.directory.remove(this);
    this.#deps.log.info({ session: this.#id, reason: reason.message }, 'agent session ended');
  }

  #receiverFor(type: number, channel: Channel): ChannelReceiver {
    if (type === StreamType.heartbeat) return new HeartbeatEcho(channel);
    const limit = this.#credential ? undefined : MAX_AUTH_BODY;
    const report = (error: unknown) => this.#deps.log.error({ err: error, type }, 'agent request failed');
    return new RpcResponder(channel, (body, size) => this.#serveCounted(type, body, size), report, limit);
  }

  async #serveCounted(type: number, body: unknown, size: number): Promise<RpcAnswer> {
    try {
      return await this.#serve(type, body, size);
    } catch (error) {
      const { refusals, address } = this.#deps;
      const who = this.#credential ? { address, session: this.#id, credential: this.#credential.id } : { address };
      if (type === StreamType.auth) refusals.session(who, error);
      if (type === StreamType.bind || type === StreamType.bindLabeled) refusals.endpoint(who, error);
      throw error;
    }
  }

  async #serve(type: number, body: unknown, size: number): Promise<RpcAnswer> {
    if (type === StreamType.serverInfo) return { body: { Region: GATEWAY.Region } };
    if (type === StreamType.auth) return this.#authenticate(parseMessage(AuthRequest, body, 'ERR_NGROK_109'));
    if (!this.#credential) throw new RpcError('ERR_NGROK_4018', 'the session has not authenticated');
    switch (type) {
      case StreamType.bind:
        return this.#listeners.bind(parseMessage(BindRequest, body, 'ERR_NGROK_301'), size);
      case StreamType.unbind:
        this.#listeners.unbind(
          parseMessage(UnbindRequest, body, 'ERR_NGROK_301').Id,
          new Error('unbound by the agent'),
        );
        return { body: {} };
      case StreamType.bindLabeled:
        return this.#listeners.bindLabeled(parseMessage(BindLabeledRequest, body, 'ERR_NGROK_301'), size);
      case StreamType.patchTunnel:
        return this.#listeners.update(parseMessage(PatchRequest, body, 'ERR_NGROK_301'), size);
      default:
        throw new RpcError('ERR_NGROK_332', `requests of type ${type} are not supported by this gateway`);
    }
  }

  async #authenticate(request: AuthRequest): Promise<RpcAnswer> {
    if (this.#authenticating) throw new RpcError('ERR_NGROK_109', 'the session has already authenticated');
    this.#authenticating = true;
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
    this.#connection.maxInbound = MAX_INBOUND;
    clearTimeout(this.#authTimer);
    this.#stopHeartbeatTimeout = watchHeartbeats(
      { interval: extra.heartbeatinterval, tolerance: extra.heartbeattolerance },
      () => this.#connection.lastReadAt,
      () => this.end(new Error('heartbeat timed out')),
    );
    const who = { session: this.#id, credential: credential.id, address: this.address };
    this.#deps.log.info({ ...who, agent: extra.clienttype, version: extra.version }, 'agent session online');
    const version = request.Version.includes('3') ? '3' : '2';
    return { body: { Version: version, ClientId: this.#id, Extra: { ...GATEWAY, AgentSessionID: this.#id } } };
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
