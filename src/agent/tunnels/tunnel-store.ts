import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { type Adapter, Low } from 'lowdb';
import { z } from 'zod';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import { withDiskAdvice } from '../../lib/files/durable-write.ts';
import { validationMessage } from '../../lib/validation-messages.ts';
import { AgentError } from '../errors/agent-error.ts';
import type { Codec } from './durable-file.ts';
import { problemList } from './problems.ts';
import { StoredTunnel, type Tunnel } from './tunnel.ts';

/** Adding members or values keeps the version. Removing a member or changing its meaning needs a new one. */
export const TUNNELS_VERSION = 1;

export const StoredTunnels = z.object({ version: z.literal(TUNNELS_VERSION), tunnels: z.array(StoredTunnel) });
export type StoredTunnels = z.infer<typeof StoredTunnels>;

/** The same before each tunnel is validated. */
const Content = StoredTunnels.extend({ tunnels: z.array(z.unknown()) });

/** Tunnels are immutable, so each is serialised once. */
const texts = new WeakMap<Tunnel, string>();

export function tunnelsFile(dataDir: string): string {
  return join(dataDir, 'tunnels.json');
}

/** `tunnels.json`: one line per tunnel, for people and diffs. */
export const tunnelsCodec: Codec<StoredTunnels> = {
  encode: ({ tunnels }) => `{"version":${TUNNELS_VERSION},"tunnels":[\n${tunnels.map(textOf).join(',\n')}\n]}\n`,
  decode: (text, leaveOut) => {
    const content: unknown = JSON.parse(text);
    const { data } = z.object({ version: z.number() }).safeParse(content);
    if (data && data.version > TUNNELS_VERSION) {
      throw new OperatorError(
        `cannot load the tunnels: a newer version of device-agent saved them (format ${data.version}, this version ` +
          `supports ${TUNNELS_VERSION}); install that version, or move tunnels.json and tunnels.json.bak away to start without tunnels`,
      );
    }
    const parsed = Content.safeParse(content, { error: validationMessage });
    if (!parsed.success) throw new Error(problemList(parsed.error).join('; '));
    return { version: TUNNELS_VERSION, tunnels: validTunnels(parsed.data.tunnels, leaveOut) };
  },
};

/** Drops the invalid tunnels; throws when all are invalid. */
function validTunnels(records: readonly unknown[], leaveOut: (reason: string) => void): Tunnel[] {
  const valid: Tunnel[] = [];
  const problems: string[] = [];
  for (const [at, record] of records.entries()) {
    const parsed = StoredTunnel.safeParse(record, { error: validationMessage });
    if (parsed.success) valid.push(parsed.data);
    else problems.push(...problemList(parsed.error).map((problem) => `tunnels[${at}].${problem}`));
  }
  if (valid.length === 0 && problems.length > 0) throw new Error(problems.join('; '));
  for (const problem of problems) leaveOut(problem);
  return valid;
}

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

  constructor(adapter: Adapter<StoredTunnels>) {
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
        for (const change of changes) change.reject(refusal);
        continue;
      }
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

function textOf(tunnel: Tunnel): string {
  let text = texts.get(tunnel);
  if (text === undefined) {
    text = JSON.stringify(tunnel);
    texts.set(tunnel, text);
  }
  return text;
}
