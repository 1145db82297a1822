import { createHash, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { type Adapter, Low } from 'lowdb';
import { z } from 'zod';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import type { Codec } from '../../lib/files/durable-file.ts';
import { withDiskAdvice } from '../../lib/files/durable-write.ts';
import { problemList, validationMessage } from '../../lib/validation-messages.ts';
import { AgentError } from '../errors/agent-error.ts';
import { StoredTunnel, type Tunnel } from './tunnel.ts';

export type { Tunnel };

/** Adding members or values keeps the version. Removing a member or changing its meaning needs a new one. */
export const TUNNELS_VERSION = 1;

const EDITED = 'if you edited the file, delete its line "checksums" and restart';

export const StoredTunnels = z.object({ version: z.literal(TUNNELS_VERSION), tunnels: z.array(StoredTunnel) });
export type StoredTunnels = z.infer<typeof StoredTunnels>;

/** The same before each tunnel is validated. Older versions write no checksums, and leave them out. */
const Content = StoredTunnels.extend({ tunnels: z.array(z.unknown()), checksums: z.array(z.unknown()).optional() });

interface Read {
  records: readonly unknown[];
  /** Null: the file was edited by hand, or is of an older version. */
  checksums: ReadonlySet<unknown> | null;
}

interface Line {
  text: string;
  checksum: string;
}

/** Tunnels are immutable, so each is serialised once. */
const lines = new WeakMap<Tunnel, Line>();

export function tunnelsFile(dataDir: string): string {
  return join(dataDir, 'tunnels.json');
}

/**
 * `tunnels.json`: one line per tunnel, for people and diffs, and a line with a checksum of each. A tunnel without its
 * checksum is damaged; one flipped bit can leave a valid file with another upstream. Without that line, all tunnels count:
 * people delete it when they edit the file.
 */
export const tunnelsCodec: Codec<StoredTunnels> = {
  encode: ({ tunnels }) => {
    const checksums = tunnels.map((tunnel) => `"${lineOf(tunnel).checksum}"`);
    return textOf(tunnels, `\n"checksums":[${checksums.join(',')}],\n`);
  },
  decode: (text, leaveOut) => {
    const problems: string[] = [];
    const tunnels = validTunnels(read(text, problems), problems);
    if (tunnels.length === 0 && problems.length > 0) throw new Error(problems.join('; '));
    for (const problem of problems) leaveOut(problem);
    return { version: TUNNELS_VERSION, tunnels };
  },
  merge: ({ tunnels }, copy) => ({ version: TUNNELS_VERSION, tunnels: mergeTunnels(tunnels, copy.tunnels) }),
};

/** The tunnels of a damaged file, and what only its copy still has: in the order of the copy, which has the place of each. */
export function mergeTunnels(tunnels: readonly Tunnel[], copy: readonly Tunnel[]): Tunnel[] {
  const own = new Map(tunnels.map((tunnel) => [tunnel.id, tunnel]));
  const known = new Set(copy.map(({ id }) => id));
  return [...copy.map((tunnel) => own.get(tunnel.id) ?? tunnel), ...tunnels.filter(({ id }) => !known.has(id))];
}

/** The same text without checksums, which people may edit. */
export function exportText(tunnels: readonly Tunnel[]): string {
  return textOf(tunnels, '');
}

function textOf(tunnels: readonly Tunnel[], checksums: string): string {
  const texts = tunnels.map((tunnel) => lineOf(tunnel).text);
  return `{"version":${TUNNELS_VERSION},${checksums}"tunnels":[\n${texts.join(',\n')}\n]}\n`;
}

function read(text: string, problems: string[]): Read {
  try {
    return readWhole(JSON.parse(text));
  } catch (error) {
    const found = readLines(text);
    // A newer version has other checksums, as they contain the version. If these match, the version is what is damaged.
    if (error instanceof OperatorError && found.records.length === 0) throw error;
    problems.push(messageOf(error));
    return found;
  }
}

function readWhole(content: unknown): Read {
  const { data } = z.object({ version: z.number() }).safeParse(content);
  if (data && data.version > TUNNELS_VERSION) {
    throw new OperatorError(
      `cannot load the tunnels: a newer version of device-agent saved them (format ${data.version}, this version ` +
        `supports ${TUNNELS_VERSION}); install that version, or move tunnels.json and tunnels.json.bak away to start without tunnels`,
    );
  }
  const parsed = Content.safeParse(content, { error: validationMessage });
  if (!parsed.success) throw new Error(problemList(parsed.error).join('; '));
  const { tunnels, checksums } = parsed.data;
  return { records: tunnels, checksums: checksums ? new Set(checksums) : null };
}

/** The lines of a damaged file that are intact; without checksums, nobody could tell. */
function readLines(text: string): Read {
  const checksums = new Set<unknown>(text.match(/(?<=")[0-9a-f]{16}(?=")/g));
  const records = text.split('\n').flatMap((line) => {
    try {
      return [JSON.parse(line.replace(/,$/, ''))];
    } catch {
      return []; // damaged
    }
  });
  return { records: records.filter((record) => isWhole(record, { checksums })), checksums };
}

function isWhole(record: unknown, { checksums }: Pick<Read, 'checksums'>): boolean {
  return checksums === null || checksums.has(checksumOf(JSON.stringify(record)));
}

/** Of a tunnel's line. Contains the version, so that no other version's tunnels match. */
export function checksumOf(text: string): string {
  return createHash('sha256').update(`${TUNNELS_VERSION} ${text}`).digest('hex').slice(0, 16);
}

/** The tunnels that are whole and valid; adds why the others are not. */
function validTunnels({ records, checksums }: Read, problems: string[]): Tunnel[] {
  const valid: Tunnel[] = [];
  const damaged: string[] = [];
  for (const [at, record] of records.entries()) {
    if (!isWhole(record, { checksums })) {
      damaged.push(`tunnels[${at}] does not match its checksum`);
      continue;
    }
    const parsed = StoredTunnel.safeParse(record, { error: validationMessage });
    if (parsed.success) valid.push(parsed.data);
    else problems.push(...problemList(parsed.error).map((problem) => `tunnels[${at}].${problem}`));
  }
  if (damaged.length > 0) problems.push(...damaged, EDITED);
  return valid;
}

function lineOf(tunnel: Tunnel): Line {
  let line = lines.get(tunnel);
  if (line === undefined) {
    const text = JSON.stringify(tunnel);
    line = { text, checksum: checksumOf(text) };
    lines.set(tunnel, line);
  }
  return line;
}

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
