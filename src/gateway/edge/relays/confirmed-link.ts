import { once } from 'node:events';
import type { Socket } from 'node:net';
import { DeadlineExceeded, withDeadline } from '../../../lib/time/deadline.ts';
import { GatewaySilent } from '../http/edge-errors.ts';
import { type LinkHealth, PATIENCE_MS } from './node-health.ts';
import { type Leg, openedTo } from './other-nodes.ts';

/** A node sends it on a connection that it has taken; no message of TLS or HTTP begins so. */
export const CONFIRMATION = 0x06;
/** Milliseconds for which the last node that serves something is waited for. */
const LAST_MS = 10_000;

/**
 * Begins a connection to a node, and waits until the node has taken it. Before that, nothing of a client is sent that is done
 * if it arrives: a node that is stopped would do it when it wakes, after another one.
 *
 * @returns the connection, or another one to the same node
 * @throws {GatewaySilent} when the node does not answer; the system's error when it ends the connection
 */
export async function confirmedLink(
  link: Socket,
  leg: Leg,
  options: {
    health: LinkHealth;
    /** @param confirms whether the node is asked to confirm */
    header: (confirms: boolean) => Buffer;
    /** What follows the header at once, because it may reach more than one node: a ClientHello. Null: nothing. */
    early: Buffer | null;
  },
): Promise<Socket> {
  const { header, early } = options;
  begin(link, header(true), early);
  if (await isConfirmed(link, leg, options.health)) return link;
  // A gateway of an earlier version confirms nothing.
  link.destroy();
  const again = await openedTo(leg.node);
  begin(again, header(false), early);
  return again;
}

function begin(link: Socket, header: Buffer, early: Buffer | null): void {
  link.write(header);
  if (early) link.write(early);
}

/** @returns false when the node answers, but does not confirm connections */
async function isConfirmed(link: Socket, { node, isLast }: Leg, health: LinkHealth): Promise<boolean> {
  const answer = once(link, 'readable');
  const within = (ms: number) => withDeadline(answer, 'the confirmation of a connection', ms);
  try {
    await within(PATIENCE_MS);
  } catch (error) {
    if (!(error instanceof DeadlineExceeded)) throw error;
    if (await health.answers(node)) {
      if (link.readableLength === 0) return false;
    } else if (!isLast) throw new GatewaySilent();
    else await within(LAST_MS);
  }
  const first: Buffer | null = link.read(1);
  if (first === null) throw new Error('the gateway has ended the connection');
  // A gateway of an earlier version has answered a ClientHello.
  if (first[0] !== CONFIRMATION) link.unshift(first);
  return true;
}
