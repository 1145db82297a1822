import { createHmac, randomUUID, timingSafeEqual } from 'node:crypto';
import type { TLSSocket } from 'node:tls';
import { BoundedMap } from '../../../lib/bounded-map.ts';
import {
  type ConnectionEnds,
  type ParsedProxyHeader,
  signedProxyHeader,
  signedValueOf,
} from '../../../lib/network/proxy-protocol.ts';
import type { InternalAddress } from '../../endpoints/online-endpoint.ts';

/**
 * What a node asks another one about itself: the figures of the dashboard, Prometheus text, history, what its probes have found, which
 * agents it expects back, or whether it answers at all. `release`: to end the sessions of agents that the asking node has passed on,
 * since it stops.
 */
export type NodeQuestion = 'counted' | 'metrics' | 'history' | 'probes' | 'expected' | 'alive' | 'release';

/**
 * What a connection of another node is for: the port of that name (`agents`: that of agents alone), a tcp endpoint's port, bytes
 * for an internal endpoint, a question, or the shared database.
 */
export type RelayedPort = 'tls' | 'http' | 'agents' | 'stream' | NodeQuestion | 'database' | number;

interface Ticket {
  to: string;
  /** The node that passes the connection on. Left out by earlier versions. */
  by?: string | undefined;
  /** When it was made, in Unix milliseconds. */
  at: number;
  nonce: string;
  port: RelayedPort;
  isLast: boolean;
  /** Whether the node says that it has taken the connection, before anything else. Earlier versions do not. */
  confirms?: boolean | undefined;
  /** Left out: a connection and its requests are for what they name. */
  internal?: InternalAddress | undefined;
}

/** What a connection is for, besides who its client is. */
export type RelayedFor = Pick<Ticket, 'by' | 'port' | 'isLast' | 'confirms' | 'internal'>;

/** Milliseconds for which a ticket is valid. */
const VALID_MS = 15_000;
/** By how much nodes may disagree on the time: each has it from the database's answer. */
const SKEW_MS = 1_000;
/** Nonces that are remembered: more connections than a node is relayed in that time. */
const MAX_NONCES = 200_000;
/** Of what both ends of a TLS connection know, and nobody else (RFC 5705). */
const EXPORTER = 'EXPORTER-device-agent-relay';
const EXPORTED_BYTES = 32;

/**
 * Says who the client is of a connection that one node passes on to another. It is the PROXY header of that connection, signed
 * with a key that all nodes have, for one node, once, and for seconds only.
 */
export class RelayTickets {
  static readonly PURPOSE = 'relay';
  static readonly PROOF_BYTES = 32;
  readonly #used = new BoundedMap<string, true>(MAX_NONCES);
  readonly #began: number;

  /**
   * @param keys those of all nodes; the first one signs. While the encryption key is being changed, nodes may differ in that one
   * @param now Unix milliseconds that they agree on
   * @param uptime milliseconds that only grow
   */
  constructor(
    private readonly keys: () => readonly string[],
    private readonly self: string,
    private readonly now: () => number,
    private readonly uptime: () => number = () => performance.now(),
  ) {
    this.#began = uptime();
  }

  /** @param use.isLast not even its requests go on to a further node @returns the header of a connection to another node */
  issue(ends: ConnectionEnds, to: string, use: Partial<Omit<RelayedFor, 'by'>> = {}): Buffer {
    const by = this.self;
    const ticket: Ticket = { port: 'tls', isLast: false, ...use, to, by, at: this.now(), nonce: randomUUID() };
    return signedProxyHeader(ends, Buffer.from(JSON.stringify(ticket)), (bytes) => this.#sign(bytes));
  }

  /** @returns what the connection is for; null without the key, for another node, when it is too old, or was used before */
  redeem(bytes: Buffer, header: ParsedProxyHeader): RelayedFor | null {
    const parts = signedValueOf(bytes, header);
    if (parts === null || header.ends === null) return null;
    if (!this.#isSigned(parts.signed, parts.signature)) return null;
    const { to, by, at, nonce, port, isLast, confirms, internal } = JSON.parse(parts.value.toString()) as Ticket;
    const age = this.now() - at;
    // What was used before a restart is not remembered.
    const isOlderThanThis = age - SKEW_MS > this.uptime() - this.#began;
    if (to !== this.self || Math.abs(age) > VALID_MS || isOlderThanThis || this.#used.get(nonce)) return null;
    this.#used.set(nonce, true);
    return { by, port, isLast, confirms, internal };
  }

  /**
   * Proves to the other end of a TLS connection that this one has the key, too. A ticket passes in plain text: who has seen it
   * could use it first, but cannot make this.
   * @param side of the TLS connection that sends it
   */
  proofOf(side: 'client' | 'server', secured: TLSSocket): Buffer {
    return this.#sign(proofBytes(side, secured));
  }

  /** Whether the other end, which is on that side, has proved it. */
  proves(proof: Buffer, side: 'client' | 'server', secured: TLSSocket): boolean {
    return this.#isSigned(proofBytes(side, secured), proof);
  }

  #sign(bytes: Buffer): Buffer {
    return signature(this.keys()[0] ?? '', bytes);
  }

  #isSigned(bytes: Buffer, given: Buffer): boolean {
    return this.keys().some((key) => {
      const expected = signature(key, bytes);
      return given.length === expected.length && timingSafeEqual(given, expected);
    });
  }
}

function signature(key: string, bytes: Buffer): Buffer {
  return createHmac('sha256', key).update(bytes).digest();
}

function proofBytes(side: 'client' | 'server', secured: TLSSocket): Buffer {
  return Buffer.concat([Buffer.from(side), exportedBy(secured)]);
}

function exportedBy(secured: TLSSocket): Buffer {
  return secured.exportKeyingMaterial(EXPORTED_BYTES, EXPORTER, Buffer.alloc(0));
}
