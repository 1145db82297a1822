import { randomUUID } from 'node:crypto';
import { type Adapter, Low } from 'lowdb';
import { messageOf } from '../../lib/errors.ts';
import { withDiskAdvice } from '../../lib/files/durable-write.ts';
import { AgentError } from '../errors/agent-error.ts';
import type { Tunnel } from './tunnel.ts';
import { type StoredTunnels, TUNNELS_VERSION } from './tunnels-file.ts';

/** After a change that could not be written, how often it is tried whether the disk can be written again. */
const RETRY_MS = 60_000;

interface Change {
  apply(tunnels: Map<string, Tunnel>): void;
  resolve(): void;
  reject(error: unknown): void;
}

/**
 * The tunnels on the disk, in order of creation. Changes show, in memory too, once they are durable. Changes during a
 * write share the next one.
 */
export class TunnelStore {
  readonly #db: Low<StoredTunnels>;
  #tunnels: ReadonlyMap<string, Tunnel> = new Map();
  #waiting: Change[] = [];
  #writing: Promise<void> | null = null;
  #failure: AgentError | null = null;
  #retry: NodeJS.Timeout | undefined;

  constructor(
    adapter: Adapter<StoredTunnels>,
    private readonly retryMs = RETRY_MS,
  ) {
    this.#db = new Low(adapter, { version: TUNNELS_VERSION, tunnels: [] });
  }

  /** @throws {OperatorError} when the file cannot be used */
  async open(): Promise<void> {
    await this.#db.read();
    this.#tunnels = byId(this.#db.data.tunnels);
  }

  list(): Tunnel[] {
    return [...this.#tunnels.values()];
  }

  /** Why the last change could not be written; null when it was, or when the disk can be written again. */
  get failure(): AgentError | null {
    return this.#failure;
  }

  /**
   * Adds a tunnel, or replaces the one with its id.
   *
   * @throws {AgentError} 500 when it could not be written; then nothing changes
   */
  save(tunnel: Tunnel): Promise<void> {
    return this.#change((tunnels) => tunnels.set(tunnel.id, tunnel));
  }

  /** @throws {AgentError} 500 when it could not be written; then nothing changes */
  remove(id: string): Promise<void> {
    return this.#change((tunnels) => tunnels.delete(id));
  }

  async settled(): Promise<void> {
    await this.#writing;
  }

  #change(apply: Change['apply']): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ apply, resolve, reject });
      this.#writing ??= this.#writeAll();
    });
  }

  /** Writes what is on the disk already: the operator looks at the failure until it is mended. */
  #tryAgainLater(): void {
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => void this.#change(() => {}).catch(() => {}), this.retryMs).unref(); // see failure
  }

  async #writeAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const changes = this.#waiting.splice(0);
      const next = new Map(this.#tunnels);
      for (const change of changes) change.apply(next);
      try {
        this.#db.data = { version: TUNNELS_VERSION, tunnels: [...next.values()] };
        await this.#db.write();
      } catch (error) {
        const message = withDiskAdvice(`change not saved: ${messageOf(error)}`, error);
        const refusal = new AgentError('ERR_AGENT_NOT_PERSISTED', message, { cause: error });
        this.#failure = refusal;
        for (const change of changes) change.reject(refusal);
        this.#tryAgainLater();
        continue;
      }
      this.#failure = null;
      clearTimeout(this.#retry);
      this.#tunnels = next;
      for (const change of changes) change.resolve();
    }
    // Synchronous with the check above, so that later changes start a new write.
    this.#writing = null;
  }
}

/** A line copied by hand with its id becomes a tunnel of its own. */
function byId(tunnels: readonly Tunnel[]): ReadonlyMap<string, Tunnel> {
  const known = new Map<string, Tunnel>();
  for (const tunnel of tunnels) {
    const id = known.has(tunnel.id) ? randomUUID() : tunnel.id;
    known.set(id, id === tunnel.id ? tunnel : { ...tunnel, id });
  }
  return known;
}
