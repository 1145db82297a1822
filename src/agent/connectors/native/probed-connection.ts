import type { TLSSocket } from 'node:tls';
import type { Clock } from '../../../lib/time/clock.ts';
import { type GatewayProbe, orSilent, type ProbeAnswer } from '../gateway-probe.ts';
import { type GatewaySocketOptions, HandshakeFailed, secureGateway } from '../gateway-socket.ts';

/** How long a connection that a probe has made waits for the session, in milliseconds. */
const KEPT_MS = 5_000;

/**
 * Keeps the connection of a probe that has reached the gateway for the session that follows, which costs another TLS handshake
 * otherwise.
 */
export class ProbedConnection {
  #kept: { socket: TLSSocket; drop: () => void } | null = null;
  /** Whether what answered last was the gateway. While it is not, probes only look. */
  #isTrusted = true;

  constructor(
    private readonly options: () => GatewaySocketOptions,
    /** Says what is wrong with an answer, with a connection of its own. */
    private readonly look: GatewayProbe,
    private readonly clock: Clock,
  ) {}

  probe: GatewayProbe = async (signal, onConnected) => {
    if (!this.#isTrusted) return this.#look(signal);
    const options = this.options();
    const tcp = await options.dial(options.address, signal);
    onConnected?.();
    const peer = tcp.remoteAddress ?? null;
    try {
      const secure = (own: AbortSignal) => secureGateway(tcp, options, own);
      const socket = await orSilent(secure, signal, this.clock);
      signal.throwIfAborted();
      this.#keep(socket);
      options.time?.unneeded();
      return { certificate: `CN=${socket.getPeerCertificate().subject?.CN ?? ''}`, problem: null, peer };
    } catch (error) {
      tcp.destroy();
      if (!(error instanceof HandshakeFailed)) throw error;
      return this.#look(signal);
    }
  };

  /** The connection of the last probe, on which nothing has been sent; null when it has ended or was taken. */
  take(): TLSSocket | null {
    const kept = this.#kept;
    kept?.drop();
    return kept?.socket ?? null;
  }

  close(): void {
    this.take()?.destroy();
  }

  async #look(signal: AbortSignal): Promise<ProbeAnswer> {
    const answer = await this.look(signal);
    this.#isTrusted = answer.problem === null;
    return answer;
  }

  #keep(socket: TLSSocket): void {
    this.close();
    const end = () => socket.destroy();
    const timer = setTimeout(end, KEPT_MS).unref();
    const drop = () => {
      clearTimeout(timer);
      socket.off('error', end).off('close', drop);
      if (this.#kept?.socket === socket) this.#kept = null;
    };
    socket.on('error', end).on('close', drop);
    this.#kept = { socket, drop };
  }
}
