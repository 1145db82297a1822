import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { Repeats } from '../../../lib/log/repeats.ts';
import { peek } from '../../../lib/network/client-hello.ts';
import { setAddresses } from '../../../lib/network/load-balancers.ts';
import { parseProxyHeader } from '../../../lib/network/proxy-protocol.ts';
import { withDeadline } from '../../../lib/time/deadline.ts';
import { ClientConnection } from '../connections/client-connection.ts';
import { pipeBoth } from '../connections/open-connections.ts';
import { resetConnection } from '../http/error-response.ts';
import type { RelayTickets } from './relay-tickets.ts';

/** Another gateway of the cluster. */
export interface NodePlace {
  readonly id: string;
  /** Of its HTTPS port, as other nodes reach it. */
  readonly host: string;
  readonly port: number;
}

/** What other nodes serve. */
export interface OtherNodes {
  /** The node that serves a name over TLS which this one does not; undefined: none does. */
  withName(host: string): NodePlace | undefined;
}

/** Milliseconds in which a node has to accept a connection; nodes are close to each other. */
const CONNECT_MS = 1_000;
const KEEP_ALIVE_MS = 10_000;

/**
 * Passes connections on to the node that serves them, as they are: TLS, policies and limits are that node's. No connection is
 * passed on twice, so that two nodes which are wrong about each other do not make a circle.
 */
export class Relays {
  readonly #failures = new Repeats();

  constructor(private readonly options: { tickets: RelayTickets; nodes: OtherNodes; log: Log }) {}

  get nodes(): OtherNodes {
    return this.options.nodes;
  }

  /** @param client nothing of it has been read */
  send(client: Socket, node: NodePlace): void {
    client.on('error', () => {});
    this.#send(client, node).catch((error: unknown) => {
      const times = this.#failures.timesDue(node.id);
      const { id, host, port } = node;
      if (times !== null)
        this.options.log.warn(
          { node: id, address: `${host}:${port}`, times, reason: messageOf(error) },
          'connection not relayed',
        );
      resetConnection(client);
    });
  }

  async #send(client: Socket, { id, host, port }: NodePlace): Promise<void> {
    const link = connect({
      host,
      port,
      allowHalfOpen: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_MS,
    });
    link.on('error', () => {});
    try {
      await withDeadline(once(link, 'connect'), `connecting to ${host}:${port}`, CONNECT_MS);
    } catch (error) {
      link.destroy();
      throw error;
    }
    if (client.destroyed) return void link.destroy();
    client.allowHalfOpen = true;
    link.write(this.options.tickets.issue(new ClientConnection(client, 0, null), id));
    pipeBoth(client, link);
  }

  /**
   * Takes a connection of another node: from now on, its client is who that node says.
   *
   * @param socket has received something that is no ClientHello, which is unread
   * @returns whether it is a node's; if not, nothing of it is read
   */
  async receive(socket: Socket): Promise<boolean> {
    const header = await peek(socket, parseProxyHeader);
    if (header === null || socket.destroyed) return false;
    const bytes: Buffer = socket.read(header.length);
    if (!this.options.tickets.redeem(bytes, header)) {
      socket.unshift(bytes);
      return false;
    }
    if (header.ends) setAddresses(socket, header.ends);
    return true;
  }
}
