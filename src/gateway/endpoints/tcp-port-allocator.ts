import { randomInt } from 'node:crypto';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { hasErrno, messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { commonPorts, describePortRange, isWithin, type PortRange } from '../../lib/network/port-range.ts';

/** A lease on an open port; the port closes with its last lease. */
export interface PortLease {
  end(): void;
}

export interface PortOpener {
  /** @throws the system's error when it cannot listen on the port */
  open(port: number): Promise<void>;
  close(port: number): void;
}

/** Remembers which ports were in use, across restarts. */
export interface PortMemory {
  /** Every port ever used, least recently used first. */
  used(): number[];
  /** Whether a port was ever used, or is given only to agents that ask for it. */
  isKnown(port: number): boolean;
  /** Those that are given only to agents that ask for them. */
  reserved(range: PortRange): number[];
  remember(port: number): Promise<void>;
}

/** The use of a range of ports. */
const KINDS = {
  tcp: { name: 'tcp', setting: 'GATEWAY_TCP_PORTS' },
  named: { name: 'https', setting: 'GATEWAY_HTTPS_PORTS' },
} as const;

export const NO_TCP_PORT = 'ERR_NGROK_18021';

/** So many ports at random are looked at first. */
const GUESSES = 20;
/** Ports in use by other programs are skipped this often; after that, something else is wrong. */
const MAX_ATTEMPTS = 50;

export class TcpPortAllocator {
  readonly #failures = new Repeats();
  readonly #open = new Map<number, { opened: Promise<void>; leases: number }>();

  constructor(
    private readonly options: {
      range: PortRange;
      /** Left out: tcp endpoints. */
      kind?: keyof typeof KINDS;
      opener: PortOpener;
      memory: PortMemory;
      /** Ports that can be open at once; left out: all of the range. */
      maxOpen?: number;
      log: Log;
    },
  ) {}

  /**
   * @param wanted null for one that was never used, or else the least recently used one, in one of the `ranges`; empty: in
   * any
   * @throws {RpcError} when no port or not this port is available
   */
  async claim(wanted: number | null, ranges: readonly PortRange[]): Promise<{ port: number; lease: PortLease }> {
    const claimed =
      wanted === null ? await this.#choose(ranges) : { port: wanted, lease: await this.#openWanted(wanted) };
    this.#remember(claimed.port);
    return claimed;
  }

  /** Records that the open ports are in use: some are open for months. */
  touch(): void {
    for (const port of this.#open.keys()) this.#remember(port);
  }

  #remember(port: number): void {
    const { memory, log } = this.options;
    memory.remember(port).catch((error: unknown) => {
      // The endpoint works; only a later allocation may choose its port too early.
      const times = this.#failures.timesDue('port');
      if (times !== null) log.warn({ port, reason: messageOf(error), times }, 'port not recorded');
    });
  }

  get #kind(): string {
    return KINDS[this.options.kind ?? 'tcp'].name;
  }

  async #openWanted(port: number): Promise<PortLease> {
    const { first, last } = this.options.range;
    if (port >= first && port <= last) {
      if (!this.#open.has(port)) this.#requireRoom();
      return this.#lease(port);
    }
    throw new RpcError(
      'ERR_NGROK_307',
      `port ${port} is outside this gateway's ${this.#kind} ports ${first} to ${last}`,
    );
  }

  async #choose(ranges: readonly PortRange[]): Promise<{ port: number; lease: PortLease }> {
    this.#requireRoom();
    let failure: unknown = null;
    for (const port of this.#candidates(ranges)) {
      if (this.#open.has(port)) continue;
      try {
        return { port, lease: await this.#lease(port) };
      } catch (error) {
        failure = error;
      }
    }
    // Not the failure's own code, which would say that the address that was asked for is online: none was.
    const { range, kind = 'tcp' } = this.options;
    const all = `all of ${describePortRange(range)} are in use or kept for others; widen ${KINDS[kind].setting}`;
    const why = failure === null ? all : messageOf(failure);
    throw new RpcError(NO_TCP_PORT, `no ${this.#kind} port available: ${why}`, { cause: failure });
  }

  #requireRoom(): void {
    const { maxOpen = Number.POSITIVE_INFINITY } = this.options;
    if (this.#open.size < maxOpen) return;
    throw new RpcError(
      NO_TCP_PORT,
      `no ${this.#kind} port available: the gateway's file descriptors suffice for ${maxOpen}`,
    );
  }

  /** Those that were never used come first. Most ranges have many of them: looking at all ports takes milliseconds. */
  *#candidates(ranges: readonly PortRange[]): Generator<number> {
    const { range, memory } = this.options;
    const allowed = ranges.length === 0 ? [range] : ranges.flatMap((each) => commonPorts(each, range));
    for (let guess = 0; guess < GUESSES && allowed.length > 0; guess += 1) {
      const port = anyPortIn(allowed);
      if (!this.#open.has(port) && !memory.isKnown(port)) yield port;
    }
    yield* this.#inOrder(ranges).slice(0, MAX_ATTEMPTS);
  }

  #inOrder(ranges: readonly PortRange[]): number[] {
    const { range, memory } = this.options;
    const reserved = new Set(memory.reserved(range));
    const isFree = (port: number) => !this.#open.has(port) && !reserved.has(port);
    return portsInOrder(range, memory.used()).filter(
      (port) => isFree(port) && (ranges.length === 0 || isWithin(port, ranges)),
    );
  }

  async #lease(port: number): Promise<PortLease> {
    const { opener } = this.options;
    const entry = this.#open.get(port) ?? { opened: opener.open(port), leases: 0 };
    this.#open.set(port, entry);
    entry.leases += 1;
    const end = () => {
      entry.leases -= 1;
      if (entry.leases > 0) return;
      this.#open.delete(port);
      opener.close(port);
    };
    try {
      await entry.opened;
    } catch (error) {
      end();
      throw cannotOpen(port, error);
    }
    return { end };
  }
}

/** The ports of a range, those that were never used first, from any of them on. @param used least recently used first */
export function portsInOrder(range: PortRange, used: readonly number[]): number[] {
  const known = new Set(used);
  const all = Array.from({ length: range.last - range.first + 1 }, (_, at) => range.first + at);
  const start = randomInt(all.length);
  const fresh = [...all.slice(start), ...all.slice(0, start)].filter((port) => !known.has(port));
  return [...fresh, ...used.filter((port) => isWithin(port, [range]))];
}

/** @param ranges at least one */
function anyPortIn(ranges: readonly PortRange[]): number {
  let place = randomInt(ranges.reduce((sum, { first, last }) => sum + last - first + 1, 0));
  for (const { first, last } of ranges) {
    if (place <= last - first) return first + place;
    place -= last - first + 1;
  }
  throw new Error('no range');
}

function cannotOpen(port: number, error: unknown): RpcError {
  const why = hasErrno(error, 'EADDRINUSE') ? 'another program uses it' : messageOf(error);
  return new RpcError('ERR_NGROK_334', `port ${port} cannot be opened on the gateway: ${why}`, {
    cause: error,
  });
}
