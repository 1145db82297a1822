import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { withDeadline } from '../../../lib/time/deadline.ts';
import type { InternalAddress, LostAddress } from '../../endpoints/online-endpoint.ts';

export interface NodePlace {
  readonly id: string;
  /** Of its HTTPS port, as other nodes reach it. */
  readonly host: string;
  readonly port: number;
  /** Another one that serves the same, for when this one cannot be reached; left out: none does. */
  readonly next?: NodePlace | undefined;
}

/** The nodes that serve what this one does not; undefined: none does. */
export interface OtherNodes {
  /** Over TLS. */
  withName(host: string): NodePlace | undefined;
  /** On the port for plain HTTP. */
  withHttpName(host: string): NodePlace | undefined;
  /** @param isHere whether it is at this node, too: then only a node is better that answers */
  withTcpPort(port: number, isHere: boolean): NodePlace | undefined;
  /** For a request on a connection that may have been opened for another name. */
  withShared(scheme: 'http' | 'https', host: string): NodePlace | undefined;
  withInternal(address: InternalAddress): NodePlace | undefined;
  /** Whether a name is served at all, here or there. One that is not may have come online a moment ago. */
  knows(port: 'tls' | 'http', host: string): boolean;
  /** Applies what has come online elsewhere; limited in time and in how often it does anything. */
  catchUp(): Promise<void>;
  /** The address of a name whose node cannot be reached, when its agent may come back there or elsewhere. */
  expectAt(port: 'tls', host: string): LostAddress | undefined;
  /** The addresses whose agents are expected back here, as a text for a node that starts. */
  expectedHere(): string;
  /** A node could not be reached: until it has answered, others come first. */
  failed(id: string): void;
  answered(id: string): void;
  /** Whether a node serves anything, as the database says. */
  serves(id: string): boolean;
  /** Where agents are passed on to while this node is emptied; undefined: it takes them, or nobody does. */
  readonly forAgents: NodePlace | undefined;
  /** The one that obtains certificates, and answers for them. */
  readonly primary: NodePlace | undefined;
}

/** Milliseconds in which a node has to accept a connection or finish a handshake; nodes are close to each other. */
export const CONNECT_MS = 1_000;
const KEEP_ALIVE_MS = 10_000;

/** A node does not answer as one of this cluster does. */
export type OnFailure = (node: NodePlace, error: unknown) => void;

/** A node that serves something, and what to do without it. */
export interface Leg {
  readonly node: NodePlace;
  /** Another node that serves the same; undefined: none does. */
  readonly spare: NodePlace | undefined;
  /** Whether no other one is left to try. */
  readonly isLast: boolean;
}

/**
 * Connects to a node, or to the next one that serves the same; `begin` makes of the connection what is returned. `onFailure`
 * is called for each that fails.
 * @throws the system's error of the last one, {@link DeadlineExceeded}, or what `begin` throws
 */
export async function connectTo<T>(
  node: NodePlace,
  onFailure: OnFailure,
  begin: (link: Socket, leg: Leg) => Promise<T>,
): Promise<T> {
  const { next } = node;
  try {
    return await connectLeg({ node, spare: next, isLast: next === undefined }, onFailure, begin);
  } catch (error) {
    if (next === undefined) throw error;
    return connectLeg({ node: next, spare: node, isLast: true }, onFailure, begin);
  }
}

async function connectLeg<T>(
  leg: Leg,
  onFailure: OnFailure,
  begin: (link: Socket, leg: Leg) => Promise<T>,
): Promise<T> {
  let link: Socket | undefined;
  try {
    link = await openedTo(leg.node);
    return await begin(link, leg);
  } catch (error) {
    link?.destroy();
    onFailure(leg.node, error);
    throw error;
  }
}

/** A connection to a node. @throws the system's error, or {@link DeadlineExceeded} */
export async function openedTo({ host, port }: NodePlace): Promise<Socket> {
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
    return link;
  } catch (error) {
    link.destroy();
    throw error;
  }
}
