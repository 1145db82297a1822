import type { Socket } from 'node:net';
import { type ClientHello, parseClientHello, peek } from '../tls/client-hello.ts';
import { ClientShares } from './client-shares.ts';

/** How far a connection has come. The less far, the sooner it is dropped for another one. */
export const PendingStage = {
  /** Nothing has arrived from it yet. */
  silent: 0,
  /** A part of its request has arrived. */
  begun: 1,
  /** Its request was answered; it has to go on. */
  answered: 2,
  /** Its whole request waits for this program. */
  waiting: 3,
} as const;
export type PendingStage = (typeof PendingStage)[keyof typeof PendingStage];

export interface PendingConnection {
  /** IP address of the peer. */
  readonly address: string;
  readonly stage: PendingStage;
}

/** Networks with at most this part of all places are no crowd: many clients may share an address. */
const SMALL_SHARE = 1 / 64;
/** How long a peer's first bytes may take, in milliseconds, before it counts as silent. */
const FIRST_BYTES_MS = 500;

/**
 * Limits connections that have yet to prove useful. Beyond the limit, one of the network with the most is dropped, the one
 * that is least far; or the one that is least far of all, when every network has few. The new one counts for its network, which
 * so takes no place from another one that has no more. So a crowd drops its own connections rather than those of agents that
 * take a while for their round trips, whatever it has sent. Of those that are equally far, the oldest is dropped. Of those that
 * wait for this program, the newest is: the oldest are served next, and if they were dropped, a busy program would serve nobody.
 */
export class PendingConnections<T extends PendingConnection> implements Iterable<T> {
  /** Oldest first, with the share of its network. */
  readonly #all = new Map<T, { readonly share: ReadonlySet<T>; readonly since: number }>();
  readonly #shares = new ClientShares<T>();

  /**
   * @param limit asked for with each new connection
   * @param drop called with the connection to close, which no longer counts
   * @param now milliseconds that only grow
   */
  constructor(
    private readonly limit: () => number,
    private readonly drop: (connection: T) => void,
    private readonly now: () => number = () => performance.now(),
  ) {}

  add(connection: T): void {
    // The new one is not compared: it had no time to send anything.
    const limit = this.limit();
    const surplus = this.#all.size >= limit ? this.#leastPromising(connection.address, limit) : null;
    this.#all.set(connection, { share: this.#shares.add(connection.address, connection), since: this.now() });
    if (surplus === null) return;
    this.delete(surplus);
    this.drop(surplus);
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#all.keys();
  }

  delete(connection: T): void {
    if (this.#all.delete(connection)) this.#shares.delete(connection.address, connection);
  }

  #leastPromising(newAddress: string, limit: number): T | null {
    const { largest } = this.#shares;
    const isCrowd = largest.size > Math.max(1, limit * SMALL_SHARE);
    const own = this.#shares.of(newAddress);
    const most = Math.max(largest.size, own.size + 1);
    const latest = this.now() - FIRST_BYTES_MS;
    let found: { connection: T; stage: number; size: number } | null = null;
    for (const [connection, { share, since }] of this.#all) {
      const size = isCrowd && share === own ? share.size + 1 : share.size;
      if (isCrowd && size < most) continue;
      // In a crowd, even those that have just come make place for those that have sent something.
      const isNew = !isCrowd && since > latest;
      const stage = isNew ? Math.max(connection.stage, PendingStage.begun) : connection.stage;
      const isNext =
        found === null ||
        stage < found.stage ||
        (stage === found.stage && (size > found.size || (size === found.size && stage === PendingStage.waiting)));
      if (isNext) found = { connection, stage, size };
    }
    return found?.connection ?? null;
  }
}

/** A connection with an unfinished TLS handshake. */
export class PendingHandshake implements PendingConnection {
  readonly address: string;
  /** Bytes of a load balancer, which came before the client's. */
  readonly #before: number;
  #request: PendingStage = PendingStage.begun;

  constructor(readonly socket: Socket) {
    this.address = socket.remoteAddress ?? '';
    this.#before = socket.bytesRead - socket.readableLength;
  }

  get stage(): PendingStage {
    return this.socket.bytesRead === this.#before ? PendingStage.silent : this.#request;
  }

  /**
   * Reads the ClientHello at the start of the connection and leaves its bytes unread; the handshake then waits for its turn.
   *
   * @returns null when it is not a ClientHello, or the connection ended before it was complete
   */
  async readHello(): Promise<ClientHello | null> {
    const hello = await peek(this.socket, parseClientHello);
    this.#request = PendingStage.waiting;
    return hello;
  }

  /** Its turn has come: from now on, the peer has to go on. */
  begins(): void {
    this.#request = PendingStage.answered;
  }
}
