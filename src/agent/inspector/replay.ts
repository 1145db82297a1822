import type { Socket } from 'node:net';
import { ApiError, messageOf } from '../../lib/errors.ts';
import { AgentError, RETRY_AFTER_S } from '../errors/agent-error.ts';
import type { ConnectionCapture } from './connection-capture.ts';
import type { Exchange, ExchangeMessage } from './exchange.ts';
import type { RequestBytes } from './replay-request.ts';

export interface ReplayOptions {
  request: RequestBytes;
  /** Connects to the upstream as it is checked now. */
  connect: () => Promise<Socket>;
  capture: ConnectionCapture;
}

/** How long a replay waits for the end of its response. */
const DEADLINE_MS = 30_000;
const MAX_AT_ONCE = 8;

/** Sends requests to upstreams, past the gateway. */
export class Replays {
  #running = 0;

  constructor(private readonly deadlineMs = DEADLINE_MS) {}

  /**
   * Sends a request and waits for the end of its response.
   *
   * @returns the exchange; it tells when the upstream is unreachable, or did not answer in time
   * @throws {ApiError} 400 when the upstream is not allowed, 503 when too many replays are under way
   */
  async send(options: ReplayOptions): Promise<Exchange> {
    if (this.#running >= MAX_AT_ONCE) {
      const problem = `too many replays: at most ${MAX_AT_ONCE} at a time; retry later`;
      throw new AgentError('ERR_AGENT_BUSY', problem, { retryAfter: RETRY_AFTER_S });
    }
    this.#running++;
    try {
      return await this.#send(options);
    } finally {
      this.#running--;
    }
  }

  async #send({ request, connect, capture }: ReplayOptions): Promise<Exchange> {
    let socket: Socket | null = null;
    let failure: unknown = null;
    try {
      socket = await connect();
    } catch (error) {
      if (error instanceof ApiError) throw error;
      failure = error;
    }
    capture.fromClient(request.head);
    if (request.body.length > 0) capture.fromClient(request.body);
    const exchange = capture.latest;
    if (exchange === null)
      throw new AgentError('ERR_AGENT_NOT_REPLAYABLE', 'cannot replay the request: it is not valid');
    if (socket === null) capture.failed(messageOf(failure));
    else await this.#exchange(socket, request, capture, exchange);
    return exchange;
  }

  async #exchange(
    socket: Socket,
    { head, body }: RequestBytes,
    capture: ConnectionCapture,
    exchange: Exchange,
  ): Promise<void> {
    let by: ExchangeMessage['from'] = 'upstream';
    const timer = setTimeout(() => {
      by = 'client';
      socket.destroy();
    }, this.deadlineMs);
    await new Promise<void>((resolve) => {
      socket.on('data', (bytes: Buffer) => {
        capture.toClient(bytes);
        if (exchange.state !== 'open') socket.destroy();
      });
      socket.on('end', () => socket.destroy());
      socket.on('error', () => socket.destroy());
      socket.on('close', resolve);
      socket.write(head);
      socket.write(body);
    });
    clearTimeout(timer);
    capture.closed(socket.readableEnded, by);
  }
}
