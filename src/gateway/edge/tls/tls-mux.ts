import type { Socket } from 'node:net';
import type { SecureContext, TLSSocket } from 'node:tls';
import type { Log } from '../../../lib/log.ts';
import {
  ACME_TLS_PROTOCOL,
  answerTlsAlpn,
  type TlsAlpnChallenges,
} from '../../certificates/challenges/challenge-tls-alpn.ts';
import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { Entrance } from '../clients/client-connections.ts';
import { hostNameOf } from '../http/host-name.ts';
import { resetConnection } from '../http/reset-connection.ts';
import type { AgentSockets } from './agent-sockets.ts';
import { type ClientHello, readClientHello } from './client-hello.ts';
import type { Handshakes } from './handshakes.ts';

/** A connection whose hello has been read, and is still to be read by whoever takes it. */
export interface Visitor {
  readonly socket: Socket;
  /** Null when it began with something else. */
  readonly hello: ClientHello | null;
  /** The host name asked for, lower case; empty for none. */
  readonly name: string;
  /** To be called when the handshake is over. */
  arrived(): void;
}

/** Something that is found by the name that clients ask for. */
export interface TlsRoute {
  /** @returns false when the visitor is not for it, and is left as it was */
  serve(visitor: Visitor): Promise<boolean>;
}

/** What serves HTTPS. */
export interface HttpsServer {
  /**
   * Runs what comes before the handshake.
   *
   * @param endpoint that the requests will mostly be for
   * @returns null when the connection is to be cut
   */
  enter(socket: Socket, hello: ClientHello | null, endpoint: GatewayEndpoint | undefined): Entrance | null;
  /** Takes over a connection on which HTTPS is to be spoken. */
  serve(secured: TLSSocket, entrance: Entrance): void;
  /**
   * Closes one connection that has nothing to do, if there is one.
   *
   * @returns false when there is none
   */
  makeRoom(): boolean;
}

export interface TlsMuxOptions {
  handshakes: Handshakes;
  /** What validations are answered with; left out: nothing. */
  challenges?: Pick<TlsAlpnChallenges, 'context'> | undefined;
  /** Left out: agents come in elsewhere. */
  agents?: AgentSockets | undefined;
  /** Where visitors are taken to, the first that serves them; HTTPS is spoken with all others. */
  routes: readonly TlsRoute[];
  /** The endpoint that HTTPS requests for a name will mostly be for. */
  httpsEndpoint(name: string): GatewayEndpoint | undefined;
  https: HttpsServer;
  /** Whether clients may speak HTTP/2. */
  http2: boolean;
  limits?: Partial<TlsMuxLimits> | undefined;
  log: Log;
}

export interface TlsMuxLimits {
  /** Milliseconds from the connection to the end of the handshake. */
  handshakeTimeout: number;
  /** Connections that have not finished their hello, or as an agent their handshake; of more, the oldest are closed. */
  hellos: number;
  /**
   * Connections of the public; of more, those are closed that have been idle for longest, or are slow with their handshake.
   * Agents are counted where they come in.
   */
  connections: number;
}

const DEFAULT_LIMITS: TlsMuxLimits = { handshakeTimeout: 10_000, hellos: 1024, connections: 8192 };
/** How often failures are told of at most. */
const QUIET_MS = 60_000;

/** A fatal alert (RFC 6066, section 3), in a record of its own. */
const UNRECOGNIZED_NAME = Buffer.from('15030300020270', 'hex');
/** Who names the protocols that it speaks is refused when none of them is among these. */
const HTTP1 = ['http/1.1', 'http/1.0'];
const HTTP2_OR_1 = ['h2', ...HTTP1];

/**
 * The public TLS port: agents, TLS endpoints and everything that speaks HTTPS share it, told apart by the name that their
 * clients ask for. The handshakes are done here in place of Node's servers, which begin with a default certificate:
 * OpenSSL then goes on to prefer that one when it has another type of key than the certificate that SNICallback finds.
 */
export class TlsMux {
  readonly #options: TlsMuxOptions;
  readonly #limits: TlsMuxLimits;
  /** In order of arrival. */
  readonly #hellos = new Set<Socket>();
  readonly #visitors = new Set<Socket>();
  /** Those of them that have yet to finish their handshake, or to say what they want, in order of arrival. */
  readonly #arriving = new Set<Socket>();
  /** Since they were told of. */
  #failures = 0;
  #toldAt = Number.NEGATIVE_INFINITY;

  constructor(options: TlsMuxOptions) {
    this.#options = options;
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
  }

  /**
   * Takes a connection, whatever comes of it: no failure leaves it.
   *
   * @param only where visitors of its port are taken to; left out: it is the port that all share
   */
  accept(socket: Socket, only?: TlsRoute): void {
    // An error ends in 'close', which all here wait for.
    socket.on('error', () => {});
    const timer = setTimeout(() => socket.destroy(), this.#limits.handshakeTimeout);
    const arrived = () => {
      clearTimeout(timer);
      this.#arriving.delete(socket);
    };
    socket.once('close', arrived);
    this.#receive(socket, arrived, only).catch((error: unknown) => {
      this.#tell(error);
      socket.destroy();
    });
  }

  /** What is wrong with a certificate shows at every connection, and those are strangers'. */
  #tell(error: unknown): void {
    this.#failures += 1;
    const now = performance.now();
    if (now - this.#toldAt < QUIET_MS) return;
    this.#options.log.error({ err: error, times: this.#failures }, 'a TLS connection could not be served');
    this.#toldAt = now;
    this.#failures = 0;
  }

  async #receive(socket: Socket, arrived: () => void, only: TlsRoute | undefined): Promise<void> {
    const hello = await this.#hurry(socket, readClientHello(socket));
    if (socket.destroyed) return;
    const name = hostNameOf(hello?.serverName ?? '');
    const visitor = { socket, hello, name, arrived };
    if (only) {
      if (this.#count(socket) && !(await only.serve(visitor))) socket.end(UNRECOGNIZED_NAME);
      return;
    }
    const validation = hello && this.#validation(hello);
    if (validation) {
      answerTlsAlpn(socket, validation);
      return;
    }
    const { agents, handshakes, routes } = this.#options;
    if (agents && name === agents.name) {
      const secured = await this.#hurry(socket, handshakes.secure(visitor));
      if (secured) agents.accept(secured);
      return;
    }
    if (!this.#count(socket)) return;
    for (const route of routes) if (await route.serve(visitor)) return;
    await this.#serveHttps(visitor);
  }

  /** A client that is slow to say what it wants, or that it is an agent, must not keep others from coming in. */
  async #hurry<T>(socket: Socket, arrival: Promise<T>): Promise<T> {
    this.#hellos.add(socket);
    if (this.#hellos.size > this.#limits.hellos) {
      const [oldest] = this.#hellos;
      oldest?.destroy();
    }
    try {
      return await arrival;
    } finally {
      this.#hellos.delete(socket);
    }
  }

  /** @returns false when there are as many as there may be, and all of them busy */
  #count(socket: Socket): boolean {
    if (this.#visitors.size >= this.#limits.connections && !this.#makeRoom()) {
      resetConnection(socket);
      return false;
    }
    this.#visitors.add(socket);
    this.#arriving.add(socket);
    socket.once('close', () => this.#visitors.delete(socket));
    return true;
  }

  #makeRoom(): boolean {
    if (this.#options.https.makeRoom()) return true;
    const [oldest] = this.#arriving;
    oldest?.destroy();
    return oldest !== undefined && this.#arriving.delete(oldest);
  }

  /** The context for a certificate authority that validates a name (RFC 8737, section 3). */
  #validation({ serverName, protocols }: ClientHello): SecureContext | undefined {
    const isValidation = protocols.length === 1 && protocols[0] === ACME_TLS_PROTOCOL;
    return isValidation ? this.#options.challenges?.context(serverName) : undefined;
  }

  async #serveHttps(visitor: Visitor): Promise<void> {
    const { agents, handshakes, http2, httpsEndpoint, https } = this.#options;
    const { socket, name, hello } = visitor;
    const endpoint = httpsEndpoint(name);
    const entrance = https.enter(socket, hello, endpoint);
    if (entrance === null) {
      resetConnection(socket);
      return;
    }
    const { demands } = entrance;
    // What the gateway itself answers speaks HTTP/1.1 alone.
    const options = { protocols: endpoint && http2 ? HTTP2_OR_1 : HTTP1, ...(demands && { demands }) };
    const isPerhapsAgent = agents && name === '' && hello?.protocols.length === 0;
    // What is no hello is told so by OpenSSL, with the alert that belongs to it.
    const secured = await handshakes.secure(visitor, options);
    if (secured === null) return;
    if (isPerhapsAgent) {
      this.#arriving.add(socket);
      secured.once('readable', () => this.#arriving.delete(socket));
      agents.sort(secured, () => https.serve(secured, entrance));
    } else https.serve(secured, entrance);
  }
}
