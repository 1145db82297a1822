import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { createServer, type Server, type TLSSocket } from 'node:tls';
import { RpcError } from '../../agent-protocol/rpc-error.ts';
import { withDeadline } from '../../lib/deadline.ts';
import type { IdSource } from '../../lib/ids.ts';
import type { Log } from '../../lib/log.ts';
import type { AgentLimits } from '../../settings/gateway-limits.ts';
import type { Leaf } from '../certificates/local-ca/certificate-files.ts';
import type { TrafficCounters } from '../metrics/traffic-counters.ts';
import type { AgentAccess } from './agent-access.ts';
import { AGENT_LIMITS, OptionBytes } from './agent-limits.ts';
import { AgentSession, type SessionDirectory } from './agent-session.ts';
import type { EndpointBinder } from './endpoint-binder.ts';
import { RefusalLog } from './refusal-log.ts';

/**
 * Connections that are still to authenticate, and as many whose handshake is not over. Of more, the oldest are closed: an
 * agent is in within moments, and a stranger who only stays must not keep others out.
 */
const MAX_NEWCOMERS = 256;
const SESSION_ID = /^ts_[0-9A-Za-z]{27}$/;
const HANDSHAKE_MS = 10_000;
/** Longer than a connection takes to close by force. */
const STOP_MS = 2_000;
const RENEWAL_CHECK_MS = 60_000;

export interface SessionServerOptions {
  access: AgentAccess;
  binder: EndpointBinder;
  ids: IdSource;
  /** Makes the certificate that agents see; asked again when the last one nears its end. */
  issueCertificate(): Promise<Leaf>;
  host: string;
  /** Of a listener of its own; 0 for any free port, null for none: agents are then all brought to `accept`. */
  port: number | null;
  /** Connections that are still to authenticate; left out: the default. */
  newcomers?: number;
  /** Left out: the defaults. */
  limits?: Partial<AgentLimits> | undefined;
  counters: TrafficCounters;
  log: Log;
}

/** Takes agents in, and knows the sessions of those that have authenticated. */
export class SessionServer implements SessionDirectory {
  readonly #options: SessionServerOptions;
  readonly #server: Server;
  readonly #connected = new Set<AgentSession>();
  readonly #maxNewcomers: number;
  readonly #limits: AgentLimits;
  readonly #optionBytes: OptionBytes;
  readonly #refusals: RefusalLog;
  /** Those that are still to authenticate, in order of arrival. */
  readonly #newcomers = new Set<AgentSession>();
  /**
   * Connections to the port of its own whose handshake is not over, in order of arrival, by their peer's address: TLS
   * sockets tell no more.
   */
  readonly #handshaking = new Map<string, Socket>();
  readonly #sessions = new Set<AgentSession>();
  #stopped = false;
  /** When the certificate that agents see was issued, by the wall clock. */
  #issuedAt = 0;
  #renewAt = 0;
  #renewal: NodeJS.Timeout | undefined;

  constructor(options: SessionServerOptions) {
    this.#options = options;
    this.#maxNewcomers = options.newcomers ?? MAX_NEWCOMERS;
    this.#limits = { ...AGENT_LIMITS, ...options.limits };
    this.#optionBytes = new OptionBytes(this.#limits.optionBytes);
    this.#refusals = new RefusalLog(options.counters, options.log);
    this.#server = createServer({ handshakeTimeout: HANDSHAKE_MS });
  }

  /** The sessions that are online. */
  get sessions(): Iterable<AgentSession> {
    return this.#sessions;
  }

  /**
   * Starts listening on a port of its own, if there is to be one.
   *
   * @returns the port
   * @throws the system's error when the port cannot be had
   */
  async start(): Promise<number | null> {
    const { host, port, log } = this.#options;
    if (port === null) return null;
    await this.#renew();
    this.#server.on('connection', (socket: Socket) => this.#await(socket));
    this.#server.on('secureConnection', (socket) => {
      this.#handshaking.delete(peerOf(socket));
      this.accept(socket);
    });
    this.#server.on('tlsClientError', (error) => log.debug({ err: error }, 'the TLS handshake of an agent failed'));
    this.#server.listen(port, host);
    await once(this.#server, 'listening');
    this.#renewal = setInterval(() => void this.#renewWhenDue(), RENEWAL_CHECK_MS).unref();
    this.#server.on('error', (error) => log.error({ err: error }, 'the listener for agents failed'));
    return (this.#server.address() as AddressInfo).port;
  }

  /** Takes an agent's connection over. */
  accept(socket: TLSSocket): void {
    if (this.#stopped) {
      socket.destroy();
      return;
    }
    const { access, binder, ids, log } = this.#options;
    socket.setNoDelay(true);
    socket.setKeepAlive(true);
    const address = socket.remoteAddress ?? '';
    const session = new AgentSession(socket, {
      ...{ access, binder, ids, address, log },
      directory: this,
      maxListeners: this.#limits.endpoints,
      optionBytes: this.#optionBytes,
      refusals: this.#refusals,
    });
    this.#connected.add(session);
    this.#newcomers.add(session);
    socket.once('close', () => {
      this.#connected.delete(session);
      this.#newcomers.delete(session);
    });
    session.start();
    const [oldest] = this.#newcomers;
    if (this.#newcomers.size <= this.#maxNewcomers || oldest === undefined) return;
    this.#newcomers.delete(oldest);
    oldest.end(new Error('too many others are waiting to authenticate'));
  }

  /** Stops listening and ends every session, within 2 s. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#renewal);
    const { listening } = this.#server;
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const session of [...this.#connected]) session.end(new Error('the gateway is stopping'));
    for (const socket of this.#handshaking.values()) socket.destroy();
    if (listening) await withDeadline(closed, 'closing the sessions', STOP_MS);
  }

  enter(session: AgentSession): void {
    if (session.agent.leg === 0) this.#replace(session);
    const { sessions: limit } = this.#limits;
    if (this.#sessions.size >= limit && !this.#makeRoom(session)) {
      throw new RpcError('ERR_NGROK_348', `the gateway carries ${limit} sessions already`);
    }
    this.#newcomers.delete(session);
    this.#sessions.add(session);
  }

  mayKeep(id: string, credentialId: string): boolean {
    if (!SESSION_ID.test(id)) return false;
    return ![...this.#sessions].some((session) => session.id === id && session.credential.id !== credentialId);
  }

  leave(session: AgentSession): void {
    this.#sessions.delete(session);
  }

  /**
   * Ends the newest session of the authtoken that has most, unless that of the newcomer has as many: nobody takes every
   * place by coming often.
   */
  #makeRoom(newcomer: AgentSession): boolean {
    const held = new Map<string, AgentSession[]>();
    for (const session of this.#sessions) {
      const { id } = session.credential;
      const others = held.get(id);
      if (others) others.push(session);
      else held.set(id, [session]);
    }
    const own = held.get(newcomer.credential.id)?.length ?? 0;
    const [most = []] = [...held.values()].sort((one, other) => other.length - one.length);
    if (most.length <= own + 1) return false;
    most.at(-1)?.end(new Error('the gateway is full, and its authtoken has more sessions than any other'));
    return true;
  }

  #await(socket: Socket): void {
    const peer = peerOf(socket);
    this.#handshaking.set(peer, socket);
    socket.once('close', () => {
      if (this.#handshaking.get(peer) === socket) this.#handshaking.delete(peer);
    });
    const [oldest] = this.#handshaking.values();
    if (this.#handshaking.size > this.#maxNewcomers) oldest?.destroy();
  }

  async #renew(): Promise<void> {
    const now = Date.now();
    const { cert, key, renewAt } = await this.#options.issueCertificate();
    this.#server.setSecureContext({ cert, key, minVersion: 'TLSv1.2' });
    this.#issuedAt = now;
    this.#renewAt = renewAt;
  }

  async #renewWhenDue(): Promise<void> {
    const now = Date.now();
    // One from a time when the clock was ahead may begin in years to come.
    if (this.#issuedAt <= now && now < this.#renewAt) return;
    try {
      await this.#renew();
    } catch (error) {
      this.#options.log.error({ err: error }, 'the certificate for agents was not renewed; trying again in a minute');
    }
  }

  /** An agent that comes anew gets everything its older connection still holds, dead or not. */
  #replace(session: AgentSession): void {
    for (const older of [...this.#sessions]) {
      const sameCredential = older.credential.id === session.credential.id;
      const sameInstance = session.agent.instance !== null && older.agent.instance === session.agent.instance;
      if (sameCredential && (older.id === session.id || sameInstance)) {
        older.end(new Error('the agent has connected anew'));
      }
    }
  }
}

function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
