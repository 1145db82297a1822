import type { Socket } from 'node:net';
import { TLSSocket, type TLSSocketOptions } from 'node:tls';
import { clientNetwork } from '../network/ip-address.ts';
import { MeteredConnection } from '../network/metered-connection.ts';
import { currentTurn, runInTurn, turnTime } from '../time/loop-turn.ts';

/** Bytes that are taken while a client waits for its turn; a ClientHello has some hundreds. */
const MAX_EARLY_BYTES = 16_384;

/** Turns that a network asks for at a time. */
const MAX_TURNS = 16;
/** One turn of so many is for clients first, the others for agents: clients that have theirs would wait for agents all the same. */
const CLIENTS_TURN = 16;
/** Milliseconds for which agents may wait and still be served in their order, and clients, who wait longer before they give up. */
const IN_ORDER_MS = { agents: 2_000, clients: 5_000 };

export interface HandshakeEvents {
  /** Whose endpoint the client has come to, when it may present certificates: see {@link MeteredConnection}. */
  readonly owner?: string;
  /** Whether it is an agent's, rather than a client's. */
  readonly isAgent?: boolean;
  /** Called when the handshake begins, once the client has its turn. */
  onBegin?(): void;
  /** Called with the first error, of the handshake or of TLS afterwards; the connection is closed then. */
  onError?(error: Error): void;
}

/**
 * Performs the server's side of a TLS handshake, once the client has begun it. Handshakes take turns by network of the client,
 * in each network between agents and clients, and have a limited part of each turn of the event loop: one takes about a
 * millisecond, and anyone may ask for thousands.
 *
 * @param socket must have a listener for errors; its bytes are unread
 * @param options a function is called in the client's turn: a certificate with its context takes as long as a handshake
 * @returns null when the handshake failed, or the client left before its turn @throws what the function throws
 */
export function performHandshake(
  socket: Socket,
  options: TLSSocketOptions | (() => Promise<TLSSocketOptions>),
  { owner = '', isAgent = false, onBegin, onError }: HandshakeEvents = {},
): Promise<TLSSocket | null> {
  if (socket.destroyed) return Promise.resolve(null);
  return new Promise((resolve, reject) => {
    const left = () => resolve(null);
    socket.once('close', left);
    inTurn(socket, isAgent, () => {
      const begin = async () => {
        const turn = currentTurn();
        const given = typeof options === 'function' ? await options() : options;
        // A certificate has been issued, for which any number of clients may have waited.
        if (currentTurn() !== turn)
          await new Promise<void>((goOn) => runInTurn(clientNetwork(socket.remoteAddress ?? ''), goOn));
        socket.off('close', left);
        if (socket.destroyed) return null;
        onBegin?.();
        return handshake(socket, given, owner, onError);
      };
      begin().then(resolve, reject);
    });
  });
}

/** Calls `begin` in the turn of a client that has sent something. What has arrived is unread then. */
function inTurn(socket: Socket, isAgent: boolean, begin: () => void): void {
  const early: Buffer[] = [];
  let bytes = 0;
  let line: Line | undefined;
  // Reading shows when the client leaves.
  const read = () => {
    const chunk: Buffer | null = socket.read();
    if (chunk === null) return;
    early.push(chunk);
    bytes += chunk.length;
    if (bytes > MAX_EARLY_BYTES) socket.off('readable', read);
    if (line) return;
    line = Line.of(clientNetwork(socket.remoteAddress ?? ''));
    line.add(turn, isAgent);
  };
  const leave = () => socket.destroy();
  const closed = () => line?.remove(turn);
  const turn = () => {
    socket.off('readable', read).off('end', leave).off('close', closed);
    socket.unshift(Buffer.concat(early));
    begin();
  };
  socket.on('readable', read).on('end', leave).on('close', closed);
}

interface Waiting {
  begin: () => void;
  /** Milliseconds of `performance.now()`. */
  since: number;
}

/**
 * The peers of one network that wait for their handshakes. Agents have most of the turns: after a restart, clients that wait for
 * them would keep them out. Of each, the first goes first. When there are more than can be served in time, the newest does, as it
 * waits the longest before it gives up.
 */
class Line {
  static readonly #all = new Map<string, Line>();
  readonly #agents: Waiting[] = [];
  readonly #clients: Waiting[] = [];
  #served = 0;
  /** Turns that it has asked for. */
  #turns = 0;

  private constructor(private readonly network: string) {}

  static of(network: string): Line {
    const line = Line.#all.get(network) ?? new Line(network);
    Line.#all.set(network, line);
    return line;
  }

  add(begin: () => void, isAgent: boolean): void {
    (isAgent ? this.#agents : this.#clients).push({ begin, since: turnTime() });
    this.#askForTurns();
  }

  /** The peer has left. */
  remove(begin: () => void): void {
    for (const waiting of [this.#agents, this.#clients]) {
      const at = waiting.findIndex((peer) => peer.begin === begin);
      if (at >= 0) waiting.splice(at, 1);
    }
  }

  #askForTurns(): void {
    while (this.#turns < Math.min(MAX_TURNS, this.#agents.length + this.#clients.length)) {
      this.#turns += 1;
      runInTurn(this.network, () => this.#serve());
    }
    if (this.#turns === 0) Line.#all.delete(this.network);
  }

  #serve(): void {
    this.#turns -= 1;
    this.#served += 1;
    const isClientsTurn = this.#served % CLIENTS_TURN === 0;
    const agent = () => nextOf(this.#agents, IN_ORDER_MS.agents);
    const client = () => nextOf(this.#clients, IN_ORDER_MS.clients);
    const next = isClientsTurn ? (client() ?? agent()) : (agent() ?? client());
    this.#askForTurns();
    next?.begin();
  }
}

function nextOf(waiting: Waiting[], inOrderMs: number): Waiting | undefined {
  const [oldest] = waiting;
  const isLate = oldest !== undefined && turnTime() - oldest.since > inOrderMs;
  return isLate ? waiting.pop() : waiting.shift();
}

async function handshake(
  socket: Socket,
  options: TLSSocketOptions,
  owner: string,
  onError: HandshakeEvents['onError'],
): Promise<TLSSocket | null> {
  const network = clientNetwork(socket.remoteAddress ?? '');
  const metered = options.requestCert ? new MeteredConnection(socket, { owner }, network) : null;
  const secured = new TLSSocket(metered ?? socket, { ...options, isServer: true });
  metered?.inspect(secured, 'client');
  let hasFailed = false;
  const fail = (error: Error) => {
    if (!hasFailed) onError?.(error);
    hasFailed = true;
    secured.destroy();
  };
  // Node reports TLS errors by this event only, before the handshake and after it.
  secured.on('_tlsError', fail).on('error', fail);
  await new Promise<void>((resolve) => {
    secured.once('secure', resolve).once('close', resolve);
  });
  if (secured.destroyed) return null;
  // The connection's new owner handles errors from now on.
  secured.off('error', fail);
  return metered || Object.hasOwn(socket, 'remoteAddress') ? withAddresses(secured, socket) : secured;
}

/** Node knows the addresses of a connection only when it reads it itself, and not those that a load balancer tells. */
export function withAddresses(secured: TLSSocket, socket: Socket): TLSSocket {
  const { remoteAddress, remotePort, remoteFamily, localAddress, localPort } = socket;
  for (const [name, value] of Object.entries({ remoteAddress, remotePort, remoteFamily, localAddress, localPort })) {
    Object.defineProperty(secured, name, { value });
  }
  return secured;
}
