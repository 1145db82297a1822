import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { messageOf } from '../../../lib/errors.ts';
import { hostPort } from '../../../lib/network/ip-address.ts';
import { withDeadline } from '../../../lib/time/deadline.ts';
import { pipeBoth } from '../connections/open-connections.ts';
import { CONNECT_MS, type NodePlace } from './other-nodes.ts';
import { RelayTickets } from './relay-tickets.ts';
import type { RemoteEndpoints } from './remote-endpoints.ts';

/** Passages for other nodes at a time: each has one connection to the database. */
const MOST = 32;
/** Milliseconds for which the other node is waited for to connect to the database. */
const DIAL_MS = 3_000;
/** Milliseconds without a byte after which a passage ends: longer than the longest answer of the database. */
const IDLE_MS = 150_000;

/** A way to the shared database, through another node. */
export interface Passage {
  /** As if it came from the server. */
  readonly stream: TLSSocket;
  /** `host:port` of the node. */
  readonly through: string;
}

/**
 * Ways to the shared database for nodes that are cut off from it alone. A node gives its own way to nodes of its cluster, as it is:
 * they sign in to the database themselves. It gives none that leads through a further node, and none to another server.
 */
export class DatabasePassages {
  #open = 0;

  /** @param dial connects to the database on this node's own way */
  constructor(
    private readonly tickets: RelayTickets,
    private readonly remote: Pick<RemoteEndpoints, 'own'>,
    private readonly dial: () => Promise<Socket>,
  ) {}

  /** Opens a way through one of some nodes, whichever gives one first. @throws what they say when none does */
  async open(nodes: readonly NodePlace[]): Promise<Passage> {
    const opening = nodes.map((node) => this.#through(node));
    try {
      const first = await Promise.any(opening);
      const end = ({ stream }: Passage) => stream !== first.stream && stream.destroy();
      for (const each of opening) each.then(end, () => {}); // one has done it
      return first;
    } catch (error) {
      const reasons = error instanceof AggregateError ? error.errors.map(messageOf) : [messageOf(error)];
      throw new Error(reasons.length === 0 ? 'no other gateway is known' : reasons.join('; '), { cause: error });
    }
  }

  async #through(node: NodePlace): Promise<Passage> {
    const through = hostPort(node.host, node.port);
    const stream = await this.remote.own(node, 'database', async (secured) => secured);
    stream.on('error', () => {});
    try {
      stream.write(this.tickets.proofOf('client', stream));
      // It has dialled by then.
      if (await this.#isProven('server', stream, CONNECT_MS + DIAL_MS)) return { stream, through };
      throw new Error(`${through} does not prove to be a gateway of this cluster`);
    } catch (error) {
      stream.destroy();
      throw new Error(`the gateway ${through} gives no way to it: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Serves a node that is cut off, once it has proved to be one. */
  async serve(secured: TLSSocket): Promise<void> {
    secured.on('error', () => {});
    if (secured.destroyed || this.#open >= MOST) return void secured.destroy();
    this.#open += 1;
    secured.once('close', () => {
      this.#open -= 1;
    });
    try {
      if (!(await this.#isProven('client', secured, CONNECT_MS))) return void secured.destroy();
      const server = await this.dial();
      if (secured.destroyed) return void server.destroy();
      secured.setTimeout(IDLE_MS, () => secured.destroy());
      secured.write(this.tickets.proofOf('server', secured));
      pipeBoth(secured, server);
    } catch {
      // The other node logs that it is cut off; when the database fails here, this one says so itself.
      secured.destroy();
    }
  }

  async #isProven(side: 'client' | 'server', secured: TLSSocket, withinMs: number): Promise<boolean> {
    const proof = await withDeadline(firstBytes(secured, RelayTickets.PROOF_BYTES), 'the proof', withinMs);
    return this.tickets.proves(proof, side, secured);
  }
}

/** @throws when the stream ends before */
function firstBytes(stream: TLSSocket, length: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const read = () => {
      const bytes: Buffer | null = stream.read(length);
      if (bytes?.length === length) finish(() => resolve(bytes));
      else if (bytes !== null) ended();
    };
    const ended = () => finish(() => reject(new Error('it has ended the connection')));
    const finish = (settle: () => void) => {
      stream.off('readable', read).off('end', ended).off('close', ended);
      settle();
    };
    // One listener for all of it: each new one would be called again for what has arrived.
    stream.on('readable', read).on('end', ended).on('close', ended);
  });
}
