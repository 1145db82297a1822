import { GLITCHES } from '../../agent-protocol/connection-limits.ts';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { BoundedMap } from '../../lib/bounded-map.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { availableMemory, MemoryBudget } from '../../lib/memory-budget.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import { type Clock, systemClock } from '../../lib/time/clock.ts';
import { runInTurn } from '../../lib/time/loop-turn.ts';
import { type BucketRate, TokenBucket, TokenBuckets } from '../../lib/time/token-bucket.ts';
import type { AgentLimits } from '../../settings/gateway-settings.ts';

const MIB = 1_048_576;
/** An idle session takes half of it; the other half is for what it carries. */
const SESSION_BYTES = 65_536;
const SESSIONS_SHARE = 1 / 2;
const MOST_SESSIONS = 100_000;

/** How many sessions fit into the memory of the machine or container. */
export function sessionsIn(bytes: number): number {
  return Math.min(MOST_SESSIONS, Math.floor((bytes * SESSIONS_SHARE) / SESSION_BYTES));
}

export const AGENT_LIMITS: AgentLimits = {
  sessions: sessionsIn(availableMemory()),
  endpoints: 10_000,
  // The SDK (1.7.0) drops its session with all connections at the 513th live stream, RPCs and heartbeats included.
  connections: 500,
  optionBytes: 64 * 1_048_576,
  policyShare: 1,
};

/** Memory that every endpoint takes besides its options, as measured with 50,000. */
const ENDPOINT_BYTES = 4096;

/**
 * Limits the policies, as they were sent and compiled, the certificates and other options that the gateway keeps for
 * agents. All sessions of an authtoken share one allowance, because their number is not limited.
 */
export class OptionBytes {
  readonly #taken = new Map<string, number>();

  constructor(private readonly limit: number) {}

  /** @param size bytes of the request or its policy @returns gives them back @throws {RpcError} when they are too many */
  take(credentialId: string, size: number, overhead = ENDPOINT_BYTES): () => void {
    let bytes = size + overhead;
    const taken = this.#taken.get(credentialId) ?? 0;
    if (taken + bytes > this.limit) {
      throw new RpcError(
        'ERR_NGROK_350',
        `option limit reached: all endpoints of an authtoken can have ${this.limit} bytes of options and policies; unbind some`,
      );
    }
    this.#taken.set(credentialId, taken + bytes);
    return () => {
      const left = (this.#taken.get(credentialId) ?? 0) - bytes;
      bytes = 0;
      if (left > 0) this.#taken.set(credentialId, left);
      else this.#taken.delete(credentialId);
    };
  }
}

/** Share of the machine's or container's memory for data that agents and clients have yet to read. */
const MEMORY_SHARE = 1 / 8;
const [LEAST, MOST] = [64 * MIB, 512 * MIB];

/** The memory for data in agent sessions: half for an authtoken, a quarter for a session. Beyond, the largest stream ends. */
export class AgentMemory {
  readonly #whole: MemoryBudget;

  /** @param limit bytes for all sessions together; omitted: a share of the memory */
  constructor(limit = Math.min(MOST, Math.max(LEAST, availableMemory() * MEMORY_SHARE))) {
    this.#whole = new MemoryBudget(limit);
  }

  ofSession(credentialId: string): MemoryBudget {
    return this.#whole.shareOf(credentialId).newShare();
  }
}

/** Sessions of an authtoken that are logged: those of a fleet at once, then one a second. */
const LOGGED_SESSIONS: BucketRate = { burst: 2_000, perMs: 0.001 };

/** Limits what the sessions of an authtoken write to the log: an agent can begin a thousand a second. */
export class LoggedSessions {
  readonly #buckets = new TokenBuckets(LOGGED_SESSIONS);
  readonly #repeats = new Repeats();

  constructor(private readonly log: Pick<Log, 'warn'>) {}

  /** Whether a new session may be logged, when it begins and when it ends. */
  take(credentialId: string, now = performance.now()): boolean {
    if (this.#buckets.of(credentialId, now).tryTake(now)) return true;
    const times = this.#repeats.timesDue(credentialId);
    if (times !== null) this.log.warn({ credential: credentialId, times }, 'too many sessions to log: lines left out');
    return false;
  }
}

/** How many glitches agents may have: by authtoken and network, so that reconnecting does not renew them. */
export class GlitchLimits {
  readonly #buckets = new TokenBuckets(GLITCHES);

  of(credentialId: string, address: string, now = performance.now()): TokenBucket {
    return this.#buckets.of(`${credentialId} ${clientNetwork(address)}`, now);
  }
}

/** Bytes of requests that an authtoken may send per millisecond. They take some quarter of a processor. */
const BYTES_PER_MS = 32_768;
/** What a request costs besides its bytes. */
const REQUEST_BYTES = 16_384;
/** The share of a processor that requests may take, where they take more than their bytes say. */
const PROCESSOR_SHARE = 0.25;
/** How long an authtoken may exceed that after a pause: an agent binds its thousands of endpoints at once. */
const BURST_MS = 10_000;
const MAX_REMEMBERED = 10_000;

/** Turns that a payer asks for at a time. */
const MAX_TURNS = 16;

interface Line {
  readonly requests: LinedRequest[];
  /** Turns that it has asked for, and has not had. */
  turns: number;
  /** Whether it has to wait before its next request. */
  isInDebt: boolean;
  /** Milliseconds of its share. */
  readonly time: TokenBucket;
}

interface LinedRequest {
  readonly size: number;
  /** Whether nobody waits for the answer any more. */
  isOver(): boolean;
  handle(): void;
  refuse(): void;
}

/**
 * Shares the processor among authtokens: they take turns, and all of them have a limited part of each turn of the event loop. Those
 * that send too much have to wait.
 */
export class RequestTurns {
  readonly #lines = new BoundedMap<string, Line>(MAX_REMEMBERED);

  constructor(
    private readonly clock: Clock = systemClock,
    private readonly burstMs = BURST_MS,
  ) {}

  /**
   * Handles a request in its turn, in the order of the calls. What it takes longer than its bytes say, later ones of the
   * payer wait.
   * @param payer id of the authtoken, or the network of an agent that has not authenticated
   * @param handle is measured up to its first wait
   * @param isOver whether nobody waits for the answer any more: the request takes no turn then, and {@link RpcError} is
   * thrown
   */
  serve<T>(payer: string, size: number, handle: () => Promise<T>, isOver: () => boolean = () => false): Promise<T> {
    const time = () => new TokenBucket({ burst: this.burstMs, perMs: 1 }, this.clock.now());
    const line = this.#lines.get(payer) ?? { requests: [], turns: 0, isInDebt: false, time: time() };
    this.#lines.set(payer, line);
    return new Promise((resolve, reject) => {
      const refuse = () => reject(new RpcError('ERR_NGROK_741', 'the session has ended'));
      const settle = () => {
        try {
          resolve(handle());
        } catch (error) {
          reject(error);
        }
      };
      line.requests.push({ size, isOver, handle: settle, refuse });
      this.#askForTurns(payer, line);
    });
  }

  #askForTurns(payer: string, line: Line): void {
    if (line.isInDebt) return;
    while (line.turns < Math.min(MAX_TURNS, line.requests.length)) {
      line.turns += 1;
      runInTurn(payer, () => void this.#serveNext(payer, line), 'first');
    }
  }

  async #serveNext(payer: string, line: Line): Promise<void> {
    line.turns -= 1;
    if (line.isInDebt) return;
    const request = this.#next(line);
    if (!request) return;
    line.time.take(priceOf(request.size), this.clock.now());
    const waitMs = line.time.waitMs(0, this.clock.now());
    if (waitMs > 0) {
      line.isInDebt = true;
      await this.clock.sleep(waitMs);
      await new Promise<void>((resolve) => runInTurn(payer, resolve, 'first'));
      line.isInDebt = false;
    }
    this.#handle(line, request);
    this.#askForTurns(payer, line);
  }

  /** Those that nobody waits for take no turn. */
  #next({ requests }: Line): LinedRequest | undefined {
    for (;;) {
      const request = requests.shift();
      if (!request?.isOver()) return request;
      request.refuse();
    }
  }

  #handle({ time }: Line, { size, isOver, handle, refuse }: LinedRequest): void {
    if (isOver()) {
      refuse();
      return;
    }
    const start = this.clock.now();
    handle();
    const now = this.clock.now();
    time.take(Math.max(0, (now - start) / PROCESSOR_SHARE - priceOf(size)), now);
  }
}

/** Milliseconds that a request takes from the allowance at least. */
function priceOf(size: number): number {
  return (size + REQUEST_BYTES) / BYTES_PER_MS;
}
