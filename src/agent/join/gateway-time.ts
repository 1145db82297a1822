import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { hasErrno, messageOf } from '../../lib/errors.ts';
import { writeDurably } from '../../lib/files/durable-write.ts';
import type { Log } from '../../lib/log/log.ts';
import { caKeyDigest } from '../../lib/tls/pinned-chain.ts';
import type { ProvedTime, TrustedTime } from '../../lib/tls/trusted-time.ts';
import type { TimePlace } from './pinned-time.ts';

/** Several connections at once need one proof. */
const REUSED_MS = 10_000;
/** So near, this machine's clock is right. */
const RIGHT_MS = 60_000;
/** The kept proof is replaced by one that is so much later: each is a write to the disk. */
const KEPT_AGAIN_MS = 600_000;

/** Where a device keeps which times its gateways have proved. */
export function timeFileIn(folder: string): string {
  return join(folder, 'gateway-time.json');
}

const Kept = z.object({
  /** By the digest of a CA's key: the latest time that it has proved, RFC 3339. */
  proved: z.record(z.string(), z.iso.datetime()),
});

/**
 * The time by the gateway that a device is pinned to, for a machine whose clock is wrong. It is only for this program: the
 * clock of the system stays as it is.
 *
 * The time goes on with the monotonic clock, until the system's clock agrees with it.
 */
export class GatewayTime {
  /** The proof in use; null: the system's clock is. */
  #proved: { time: number; at: number } | null = null;
  #problem: string | null = null;
  /** The latest proved times, by the digests of the CAs' keys, and what of them is on the disk. */
  readonly #latest = new Map<string, number>();
  #kept: Promise<Map<string, number>> | null = null;

  constructor(
    private readonly own: {
      /** Keeps what was proved over restarts; null: nothing does. */
      file: string | null;
      /** Whether that file stays as it is. */
      isReadOnly?: boolean;
      log: Pick<Log, 'warn' | 'info'> | null;
      /** The system's clock, in milliseconds since 1970. */
      wallClock?: () => number;
      /** Milliseconds on a monotonic clock. */
      monotonic?: () => number;
    },
  ) {}

  /** Milliseconds since 1970: as proved where that was needed, else by the system's clock. */
  now(): number {
    const system = this.#system();
    if (this.#proved === null) return system;
    const proved = this.#proved.time + this.#monotonic() - this.#proved.at;
    if (Math.abs(system - proved) > RIGHT_MS) return proved;
    this.#proved = null;
    this.own.log?.info('clock right again; using it');
    return system;
  }

  /** How the time is taken, for the status. */
  report(): { source: 'system' | 'gateway'; aheadMs: number | null; problem: string | null } {
    const now = this.now();
    if (this.#proved === null) return { source: 'system', aheadMs: null, problem: this.#problem };
    return { source: 'gateway', aheadMs: this.#system() - now, problem: this.#problem };
  }

  /** The time as a gateway proves it. @param find the place, which may not be known yet */
  at(find: () => Promise<TimePlace>): TrustedTime {
    let last: { proof: Promise<ProvedTime>; at: number } | null = null;
    return {
      prove: async () => {
        const now = this.#monotonic();
        if (last === null || now - last.at > REUSED_MS) {
          // Not with the caller's signal: others may wait for the same proof.
          const proof = this.#prove(find);
          last = { proof, at: now };
          proof.catch(() => {
            last = null;
          });
        }
        return last.proof;
      },
      unneeded: () => {
        this.#problem = null;
      },
    };
  }

  async #prove(find: () => Promise<TimePlace>): Promise<ProvedTime> {
    try {
      const place = await find();
      // Loaded on demand: most clocks are right.
      const { askForTime } = await import('./pinned-time.ts');
      const proved = await askForTime(place);
      await this.#take(proved, place.origin);
      return proved;
    } catch (error) {
      const reason = `no time from the gateway: ${messageOf(error)}`;
      if (this.#problem !== reason) this.own.log?.warn({ reason: messageOf(error) }, 'time of the gateway not proved');
      this.#problem = reason;
      throw new Error(reason, { cause: error });
    }
  }

  /** @throws when an earlier proof was later */
  async #take({ time, ca }: ProvedTime, origin: string): Promise<void> {
    const key = caKeyDigest(ca);
    this.#kept ??= this.#read();
    const kept = await this.#kept;
    const latest = Math.max(this.#latest.get(key) ?? 0, kept.get(key) ?? 0);
    // Gateways of a cluster differ a little, and answers may overtake each other.
    if (time < latest - RIGHT_MS) throw new BackwardTime(time, latest, this.own.file);
    this.#latest.set(key, Math.max(time, latest));
    this.#problem = null;
    this.#use(time, origin);
    if (time - (kept.get(key) ?? 0) < KEPT_AGAIN_MS) return;
    kept.set(key, time);
    await this.#write(kept);
  }

  #use(time: number, origin: string): void {
    const system = this.#system();
    const isWrong = Math.abs(system - time) > RIGHT_MS;
    if (isWrong && this.#proved === null) {
      const ahead_s = Math.round((system - time) / 1000);
      const facts = { shown: shownTime(system), proved: shownTime(time), ahead_s, gateway: origin };
      this.own.log?.warn(facts, 'clock wrong; using the time of the gateway');
    }
    this.#proved = isWrong ? { time, at: this.#monotonic() } : null;
  }

  async #read(): Promise<Map<string, number>> {
    const { file, log } = this.own;
    if (file === null) return new Map();
    try {
      const { proved } = Kept.parse(JSON.parse(await readFile(file, 'utf8')));
      return new Map(Object.entries(proved).map(([key, time]) => [key, Date.parse(time)]));
    } catch (error) {
      if (!hasErrno(error, 'ENOENT')) log?.warn({ file, reason: messageOf(error) }, 'proved time unreadable');
      return new Map();
    }
  }

  async #write(kept: ReadonlyMap<string, number>): Promise<void> {
    const { file, isReadOnly, log } = this.own;
    if (file === null || isReadOnly) return;
    const proved = Object.fromEntries([...kept].map(([key, time]) => [key, shownTime(time)]));
    await writeDurably(file, `${JSON.stringify({ proved } satisfies z.infer<typeof Kept>)}\n`, 0o600).catch((error) => {
      log?.warn({ file, reason: messageOf(error) }, 'proved time not saved');
    });
  }

  #system(): number {
    return (this.own.wallClock ?? Date.now)();
  }

  #monotonic(): number {
    return (this.own.monotonic ?? (() => performance.now()))();
  }
}

class BackwardTime extends Error {
  constructor(time: number, latest: number, file: string | null) {
    const way = file === null ? '' : `, or delete ${file}`;
    super(
      `it proves ${shownTime(time)}, which is before ${shownTime(latest)}, which it has proved earlier: check its clock${way}`,
    );
  }
}

/** As JSON; a clock that is wrong may show a time that a date cannot have. */
function shownTime(time: number): string {
  return new Date(time).toISOString();
}
