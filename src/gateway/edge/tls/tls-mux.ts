import type { Socket } from 'node:net';
import type { Log } from '../../../lib/log/log.ts';
import { PendingConnections, PendingHandshake } from '../../../lib/network/pending-connections.ts';
import type { TlsAlpnChallenges } from '../../certificates/challenges/challenge-tls-alpn.ts';
import { hostNameOf } from '../http/host-name.ts';
import { answerValidation } from './acme-validation.ts';
import type { AgentConnections } from './agent-connections.ts';
import type { ConnectionSlots } from './connection-slots.ts';
import { FailureLog } from './failure-log.ts';
import type { Handshakes } from './handshakes.ts';
import type { PendingConnection, TlsRoute } from './tls-route.ts';

export interface TlsMuxOptions {
  handshakes: Handshakes;
  /** Challenges that answer validations; without them there are no answers. */
  challenges: Pick<TlsAlpnChallenges, 'context'> | undefined;
  /** Left out: agents connect elsewhere. */
  agents: AgentConnections | undefined;
  /** Routes of the shared port, tried in order; the last one serves everything. */
  routes: readonly TlsRoute[];
  slots: ConnectionSlots;
  limits: Pick<TlsLimits, 'handshakeTimeout' | 'hellos'>;
  log: Log;
}

export interface TlsLimits {
  /** Milliseconds from the connection to the client's turn, and from there to the end of the handshake. */
  handshakeTimeout: number;
  /** Connections that are sending their ClientHello, or handshaking as an agent; see {@link PendingConnections}. */
  hellos: number;
  /** Client connections; see {@link ConnectionSlots}. Agents are limited by the session server. */
  connections: number;
}

export const TLS_LIMITS: TlsLimits = { handshakeTimeout: 10_000, hellos: 1024, connections: 8192 };

type HandshakeProgress = Pick<PendingConnection, 'handshakeBegins' | 'handshakeDone'>;

/** Fatal alerts (RFC 8446, section 6), as complete records. */
const DECODE_ERROR = Buffer.from('15030300020232', 'hex');
const UNRECOGNIZED_NAME = Buffer.from('15030300020270', 'hex');

/**
 * Routes TLS connections by the host name in their ClientHello: agents, TLS endpoints, TLS edges and HTTPS share one port.
 * The gateway performs the handshakes itself. Node's servers begin with a default certificate, which OpenSSL goes on to
 * prefer when its key type differs from that of the certificate that SNICallback finds.
 */
export class TlsMux {
  /** Of those that are sending their ClientHello, or handshaking as an agent: none counts as a client's yet. */
  readonly #pending: PendingConnections<PendingHandshake>;
  readonly #failures: FailureLog;

  constructor(private readonly options: TlsMuxOptions) {
    this.#pending = new PendingConnections(options.limits.hellos, ({ socket }) => socket.destroy());
    this.#failures = new FailureLog(options.log);
  }

  /**
   * Takes a connection over; throws nothing.
   *
   * @param only the single route of a further port; left out: the connection came to the shared port
   */
  accept(socket: Socket, only?: TlsRoute): void {
    const { limits, slots } = this.options;
    // An error is followed by 'close'.
    socket.on('error', () => {});
    const timer = setTimeout(() => socket.destroy(), limits.handshakeTimeout);
    const handshake = new PendingHandshake(socket);
    const handshakeBegins = () => {
      timer.refresh();
      handshake.begins();
      slots.handshakeBegins(socket);
    };
    const handshakeDone = () => {
      clearTimeout(timer);
      slots.preventEviction(socket);
    };
    socket.once('close', handshakeDone);
    this.#pending.add(handshake);
    this.#serve(handshake, { handshakeBegins, handshakeDone }, only)
      .catch((error: unknown) => {
        this.#failures.report(error);
        socket.destroy();
      })
      .finally(() => this.#pending.delete(handshake));
  }

  async #serve(handshake: PendingHandshake, progress: HandshakeProgress, only: TlsRoute | undefined): Promise<void> {
    const { socket } = handshake;
    const hello = await handshake.readHello();
    if (socket.destroyed) return;
    if (hello === null) {
      // OpenSSL might find a name in it, and routing, certificate and policy would be those of another.
      socket.end(DECODE_ERROR);
      return;
    }
    const pending = { socket, hello, hostName: hostNameOf(hello.serverName), ...progress };
    const { routes, challenges, agents, slots } = this.options;
    if (!only && answerValidation(pending, challenges)) return;
    if (!only && agents?.name === pending.hostName) {
      const secured = await this.options.handshakes.secure(pending);
      if (secured) agents.accept(secured);
      return;
    }
    this.#pending.delete(handshake);
    if (!slots.take(socket)) return;
    slots.allowEviction(socket);
    for (const route of only ? [only] : routes) if (await route.serve(pending)) return;
    socket.end(UNRECOGNIZED_NAME);
  }
}
