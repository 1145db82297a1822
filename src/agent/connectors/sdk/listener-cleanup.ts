import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import { type Listener, SessionBuilder } from '@ngrok/ngrok';
import { FrameDecoder, FrameWriter } from '../../../agent-protocol/frames.ts';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { withDeadline } from '../../../lib/time/deadline.ts';
import { makeRelayCertificate, type SdkServer } from './gateway-relay.ts';

/** Waits for the tunnels to reconnect, which need the processor more. */
export const PAUSE_MS = 10_000;
/** For each SDK call; the SDK has no deadlines. */
const DEADLINE_MS = 15_000;

export interface ListenerCleanupOptions {
  clock: Clock;
  log: Log;
  /** Opens the gateway that the clean-up connects to; tests replace it. */
  openGateway?: typeof openLoopbackGateway;
}

/**
 * Makes the SDK free the listeners of lost sessions, and the sessions with them.
 *
 * The SDK keeps each listener in a table of the process until the gateway confirms that it is closed. On a lost session
 * that call rejects, and a method that rejects leaks its object (1.7.0: the binding to Node releases the reference to
 * `this` only after a success). One such object keeps its whole session: 31 KB with ten tunnels at every reconnect, for
 * the years that a device runs.
 *
 * But any session of the process can close any listener in the table by its id. So a working session closes them: one
 * with a gateway on loopback, which involves neither the real gateway nor the link to it.
 */
export class ListenerCleanup {
  readonly #lost = new Set<Listener>();
  #builder: SessionBuilder | null = null;
  #cancel: (() => void) | null = null;
  #closed = false;

  constructor(private readonly options: ListenerCleanupOptions) {}

  /** Adds listeners of ended sessions; they are closed a while later. */
  add(listeners: Iterable<Listener>): void {
    if (this.#closed) return;
    for (const listener of listeners) this.#lost.add(listener);
    this.#schedule();
  }

  /** Drops the rest: the process ends. */
  close(): void {
    this.#closed = true;
    this.#lost.clear();
    this.#cancel?.();
  }

  #schedule(): void {
    if (this.#lost.size === 0) return;
    this.#cancel ??= this.options.clock.after(PAUSE_MS, () => void this.#clear());
  }

  async #clear(): Promise<void> {
    const { log } = this.options;
    const count = this.#lost.size;
    try {
      await this.#closeAll();
      log.debug({ listeners: count }, 'lost listeners closed');
    } catch (error) {
      log.debug({ reason: messageOf(error) }, 'lost listeners could not be closed');
      await this.#closeThemselves();
    }
    this.#cancel = null;
    this.#schedule();
  }

  async #closeAll(): Promise<void> {
    const gateway = await (this.options.openGateway ?? openLoopbackGateway)();
    try {
      // A builder whose connect() rejects leaks as well, so one serves all.
      this.#builder ??= new SessionBuilder().handleDisconnection(() => false);
      const builder = this.#builder.serverAddr(gateway.address).caCert(Buffer.from(gateway.cert));
      const session = await this.#inTime(builder.connect());
      try {
        for (const listener of this.#lost) {
          await this.#inTime(session.closeListener(listener.id()));
          this.#lost.delete(listener);
        }
      } finally {
        await this.#inTime(session.close());
      }
    } finally {
      gateway.close();
    }
  }

  #inTime<T>(call: Promise<T>): Promise<T> {
    return withDeadline(call, 'closing lost listeners', DEADLINE_MS, undefined, this.options.clock);
  }

  /** At least empties the SDK's table; each listener leaks as described above. */
  async #closeThemselves(): Promise<void> {
    const left = [...this.#lost];
    this.#lost.clear();
    await Promise.allSettled(left.map((listener) => listener.close()));
  }
}

/** Agents never use this stream id, and ignore credit for it. */
const UNUSED_STREAM_ID = 1;

/** Grants a request of any type: requests other than AUTH ignore the members of its answer. */
const GRANTED = Buffer.from(JSON.stringify({ Version: '3', ClientId: 'loopback' }));

export interface LoopbackGateway extends SdkServer {
  close(): void;
}

/**
 * Opens a gateway on loopback for SDK sessions of this process. It grants every request and does nothing, so other
 * programs gain nothing from connecting to it.
 */
async function openLoopbackGateway(): Promise<LoopbackGateway> {
  const { cert, key } = makeRelayCertificate();
  const clients = new Set<Socket>();
  const server = createServer({ cert, key, noDelay: true }, grantRequests);
  server.maxConnections = 4;
  server.on('connection', (client) => {
    clients.add(client);
    client.once('close', () => clients.delete(client));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = () => {
    server.close();
    for (const client of clients) client.destroy();
  };
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, cert, close };
}

/**
 * Answers each request: the SDK opens a stream with its type and then sends the request in one frame. Credit for an unused
 * stream follows all received data, because the SDK leaves Nagle's algorithm on: its next small write would wait about 40 ms
 * for a delayed ACK.
 */
function grantRequests(sdk: TLSSocket): void {
  const answers = new FrameWriter();
  const ignored = () => {};
  let answerTo: number | null = null;
  const decoder = new FrameDecoder({
    onData: (streamId, length, syn) => {
      answerTo = syn || length === 0 ? null : streamId;
    },
    onPayload: ignored,
    onDataEnd: () => {
      if (answerTo !== null) answers.data(answerTo, [GRANTED], GRANTED.length, { syn: false, fin: true });
    },
    onReset: ignored,
    onWindowIncrement: ignored,
    onGoAway: () => sdk.pause(),
  });
  sdk.on('error', () => sdk.destroy());
  sdk.on('data', (chunk: Buffer) => {
    try {
      decoder.push(chunk);
    } catch {
      // Another program, which does not speak the protocol.
      sdk.destroy();
      return;
    }
    answers.windowIncrement(UNUSED_STREAM_ID, 1);
    answers.writeTo(sdk);
  });
}
