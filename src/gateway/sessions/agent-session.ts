import type { Duplex } from 'node:stream';
import type { Channel, ChannelReceiver } from '../../agent-protocol/channel.ts';
import { Connection, type ConnectionUser, MAX_INBOUND } from '../../agent-protocol/connection.ts';
import { HeartbeatEcho, HeartbeatProbe } from '../../agent-protocol/heartbeat.ts';
import {
  AuthRequest,
  BindLabeledRequest,
  BindRequest,
  parseMessage,
  StreamType,
  streamPrefix,
  UnbindRequest,
} from '../../agent-protocol/messages.ts';
import { type RpcAnswer, RpcResponder } from '../../agent-protocol/rpc.ts';
import { RpcError } from '../../agent-protocol/rpc-error.ts';
import { TypedStream } from '../../agent-protocol/typed-stream.ts';
import type { IdSource } from '../../lib/ids.ts';
import type { Log } from '../../lib/log.ts';
import type { Credential } from '../endpoints/endpoint-owner.ts';
import type { AgentAccess } from './agent-access.ts';
import { AgentCommands } from './agent-commands.ts';
import { type AgentInfo, agentInfo } from './agent-info.ts';
import type { OptionBytes } from './agent-limits.ts';
import type { ListenerOwner } from './agent-listener.ts';
import type { EndpointBinder } from './endpoint-binder.ts';
import type { RefusalLog } from './refusal-log.ts';
import { type Listener, SessionListeners } from './session-listeners.ts';
import { StreamGate } from './stream-gate.ts';

const AUTH_DEADLINE_MS = 10_000;
const PROBE_MS = 1_000;
/** Heartbeats may be late by this much beyond what the agent tolerates itself. */
const SILENCE_SLACK_MS = 1_000;
const MAX_SILENCE_MS = 600_000;
/** Before it has authenticated, nobody makes the gateway keep more than this for a stream, nor for more streams. */
const MAX_AUTH_BODY = 65_536;
const MAX_AUTH_STREAMS = 4;

/** Knows all sessions of the gateway. */
export interface SessionDirectory {
  /**
   * Takes a session in that has just authenticated, and ends older ones of the same agent.
   *
   * @throws {RpcError} when there is no room
   */
  enter(session: AgentSession): void;
  /** Whether an agent may go on under the id of an earlier session: it has our form, and is nobody else's. */
  mayKeep(id: string, credentialId: string): boolean;
  leave(session: AgentSession): void;
}

export interface AgentSessionDeps {
  access: AgentAccess;
  binder: EndpointBinder;
  directory: SessionDirectory;
  /** Listeners that it may have. */
  maxListeners: number;
  optionBytes: OptionBytes;
  ids: IdSource;
  /** IP address of the agent. */
  address: string;
  refusals: RefusalLog;
  log: Log;
}

/** One connection of an agent: from the TLS handshake to the end. */
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
  #over = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(socket: Duplex, deps: AgentSessionDeps) {
    this.#deps = deps;
    this.#connection = new Connection(socket, this);
    this.#connection.maxInbound = MAX_AUTH_STREAMS;
    this.gate = new StreamGate(this.#connection);
    this.commands = new AgentCommands(this.#connection);
    this.#listeners = new SessionListeners(this, deps);
  }

  /** `ClientId` of the protocol: `ts_…`, kept by the agent when it reconnects. Empty before it has authenticated. */
  get id(): string {
    return this.#id;
  }

  get online(): boolean {
    return this.#credential !== null && !this.#over;
  }

  get credential(): Credential {
    if (!this.#credential) throw new Error('the session has not authenticated');
    return this.#credential;
  }

  get agent(): AgentInfo {
    if (!this.#agent) throw new Error('the session has not authenticated');
    return this.#agent;
  }

  /** IP address of the agent. */
  get address(): string {
    return this.#deps.address;
  }

  /** Its endpoints and labelled tunnels. */
  get listeners(): Iterable<Listener> {
    return this.#listeners.values();
  }

  /** Starts serving; an agent that does not authenticate in time is dropped. */
  start(): void {
    this.#timer = setTimeout(() => this.end(new Error('the agent did not authenticate in time')), AUTH_DEADLINE_MS);
    this.#timer.unref();
    this.#connection.start();
  }

  end(reason: Error): void {
    this.#connection.close(reason);
  }

  /**
   * Takes one endpoint or labelled tunnel offline for good and tells the agent why.
   *
   * @param code `ERR_NGROK_…`
   */
  stopListener({ id }: Pick<Listener, 'id'>, message: string, code: string): void {
    this.#listeners.unbind(id, new Error(message));
    this.commands.stopTunnel(id, message, code);
  }

  async isAlive(): Promise<boolean> {
    if (this.#over) return false;
    const heardBefore = this.#connection.lastReadAt;
    const answered = await this.#heartbeat().ask(PROBE_MS);
    return !this.#over && (answered || this.#connection.lastReadAt > heardBefore);
  }

  accept(channel: Channel): void {
    channel.receiver = new TypedStream(channel, (type) => this.#receiverFor(type, channel));
  }

  ended(reason: Error): void {
    this.#over = true;
    clearTimeout(this.#timer);
    this.#listeners.unbindAll(reason);
    if (!this.#credential) return;
    this.#deps.directory.leave(this);
    this.#deps.log.info({ session: this.#id, reason: reason.message }, 'agent session ended');
  }

  #receiverFor(type: number, channel: Channel): ChannelReceiver {
    if (type === StreamType.heartbeat) return new HeartbeatEcho(channel);
    const limit = this.#credential ? undefined : MAX_AUTH_BODY;
    const report = (error: unknown) => this.#deps.log.error({ err: error, type }, 'a request of an agent failed');
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
    if (type === StreamType.auth) return this.#authenticate(parseMessage(AuthRequest, body, 'ERR_NGROK_109'));
    if (!this.#credential) throw new RpcError('ERR_NGROK_4018', 'the session has not authenticated');
    switch (type) {
      case StreamType.bind:
        return this.#listeners.bind(parseMessage(BindRequest, body, 'ERR_NGROK_301'), size);
      case StreamType.unbind:
        this.#listeners.unbind(parseMessage(UnbindRequest, body, 'ERR_NGROK_301').Id, new Error('the agent closed it'));
        return { body: {} };
      case StreamType.bindLabeled:
        return this.#listeners.bindLabeled(parseMessage(BindLabeledRequest, body, 'ERR_NGROK_301'), size);
      default:
        throw new RpcError('ERR_NGROK_332', `requests of type ${type} are not supported by this gateway`);
    }
  }

  async #authenticate(request: AuthRequest): Promise<RpcAnswer> {
    if (this.#authenticating) throw new RpcError('ERR_NGROK_109', 'the session has authenticated already');
    this.#authenticating = true;
    const { Extra: extra } = request;
    const credential = await this.#deps.access.authenticate(extra.authtoken);
    if (this.#over) throw new RpcError('ERR_NGROK_741', 'the session is over');
    const { directory, ids } = this.#deps;
    this.#id = directory.mayKeep(request.ClientId, credential.id) ? request.ClientId : ids.next('ts');
    this.#agent = agentInfo(request);
    this.#credential = credential;
    try {
      directory.enter(this);
    } catch (error) {
      this.#credential = null;
      throw error;
    }
    this.#connection.maxInbound = MAX_INBOUND;
    this.#watch(Math.min(extra.heartbeatinterval + extra.heartbeattolerance + SILENCE_SLACK_MS, MAX_SILENCE_MS));
    const who = { session: this.#id, credential: credential.id, address: this.address };
    this.#deps.log.info({ ...who, agent: extra.clienttype, version: extra.version }, 'agent session online');
    const version = request.Version.includes('3') ? '3' : '2';
    return { body: { Version: version, ClientId: this.#id, Extra: {} } };
  }

  /**
   * Ends the session once nothing was heard for so long: after `close()` an SDK neither says goodbye nor hangs up, it
   * merely falls silent.
   */
  #watch(silenceMs: number): void {
    clearTimeout(this.#timer);
    const left = this.#connection.lastReadAt + silenceMs - performance.now();
    if (left <= 0) {
      this.end(new Error('nothing was heard of the agent for too long'));
      return;
    }
    this.#timer = setTimeout(() => this.#watch(silenceMs), left);
    this.#timer.unref();
  }

  #heartbeat(): HeartbeatProbe {
    if (this.#probe) return this.#probe;
    const channel = this.#connection.channel();
    channel.write(streamPrefix(StreamType.heartbeat));
    this.#probe = new HeartbeatProbe(channel);
    channel.receiver = this.#probe;
    this.#connection.open(channel);
    return this.#probe;
  }
}
