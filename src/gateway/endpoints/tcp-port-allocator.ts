import { randomInt } from 'node:crypto';
import { RpcError } from '../../agent-protocol/rpc-error.ts';
import { hasErrno, messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log.ts';
import type { PortRange } from '../../lib/port-range.ts';

/** A port that is open; it closes with the last of its leases. */
export interface PortLease {
  end(): void;
}

/** Opens ports to the public. */
export interface PortOpener {
  /** @throws the system's error when the port cannot be had */
  open(port: number): Promise<void>;
  close(port: number): void;
}

/** Knows which ports were in use, beyond the life of the process. */
export interface PortMemory {
  /** Every port that ever was, those first that have not been for longest. */
  used(): number[];
  /** Notes that a port is in use now. */
  remember(port: number): Promise<void>;
}

export interface TcpPortAllocatorOptions {
  range: PortRange;
  opener: PortOpener;
  memory: PortMemory;
  log: Log;
}

/** A port that somebody else on the machine has is passed over so often; then something is wrong with all of them. */
const MAX_ATTEMPTS = 50;

/** The ports of tcp endpoints: chooses them, and opens them to the public. */
export class TcpPortAllocator {
  readonly #options: TcpPortAllocatorOptions;
  /** Those that are open or being opened. */
  readonly #open = new Map<number, { opened: Promise<void>; leases: number }>();

  constructor(options: TcpPortAllocatorOptions) {
    this.#options = options;
  }

  /**
   * Opens a port.
   *
   * @param wanted null for one that nobody ever had, else for one that has been out of use for long
   * @throws {RpcError} when it cannot be had
   */
  async claim(wanted: number | null): Promise<{ port: number; lease: PortLease }> {
    const claimed = wanted === null ? await this.#choose() : { port: wanted, lease: await this.#openWanted(wanted) };
    const { memory, log } = this.#options;
    memory.remember(claimed.port).catch((error: unknown) => {
      // The endpoint works all the same; only a choice much later may fall on its port.
      log.warn({ port: claimed.port, reason: messageOf(error) }, 'a tcp port could not be written down');
    });
    return claimed;
  }

  async #openWanted(port: number): Promise<PortLease> {
    const { first, last } = this.#options.range;
    if (port >= first && port <= last) return this.#lease(port);
    throw new RpcError('ERR_NGROK_307', `the tcp ports of this gateway are ${first} to ${last}, not ${port}`);
  }

  async #choose(): Promise<{ port: number; lease: PortLease }> {
    let failure: Error | null = null;
    for (const port of this.#candidates().slice(0, MAX_ATTEMPTS)) {
      if (this.#open.has(port)) continue;
      try {
        return { port, lease: await this.#lease(port) };
      } catch (error) {
        failure = error as Error;
      }
    }
    throw failure ?? new RpcError('ERR_NGROK_18021', 'every tcp port of this gateway is taken');
  }

  #candidates(): number[] {
    const { range, memory } = this.#options;
    const isFree = (port: number) => port >= range.first && port <= range.last && !this.#open.has(port);
    const used = memory.used();
    const known = new Set(used);
    const all = Array.from({ length: range.last - range.first + 1 }, (_, at) => range.first + at);
    const start = randomInt(all.length);
    const fresh = [...all.slice(start), ...all.slice(0, start)].filter((port) => !known.has(port) && isFree(port));
    return [...fresh, ...used.filter(isFree)];
  }

  async #lease(port: number): Promise<PortLease> {
    const { opener } = this.#options;
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

function cannotOpen(port: number, error: unknown): RpcError {
  const why = hasErrno(error, 'EADDRINUSE') ? 'another program has it' : messageOf(error);
  return new RpcError('ERR_NGROK_334', `port ${port} cannot be opened on the gateway's machine: ${why}`, {
    cause: error,
  });
}
