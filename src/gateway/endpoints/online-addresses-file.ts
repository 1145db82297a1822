import { appendFile, readFile, rename, writeFile } from 'node:fs/promises';
import { z } from 'zod';
import { hasErrno, messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { type EndpointRegistry, lostAddressOf } from './endpoint-registry.ts';
import type { OnlineEndpoint } from './online-endpoint.ts';

const Line = z.object({ place: z.string(), credentialId: z.string(), needsHandshake: z.boolean() });
type Line = z.output<typeof Line>;

/** Milliseconds after which new addresses are written, all together. */
const WRITE_MS = 100;
/** How often addresses are removed that are offline, in milliseconds; and how many there are at most meanwhile. */
const TIDY_MS = 600_000;
const MAX_SURPLUS = 10_000;
const MODE = 0o600;

/**
 * Keeps in a file which addresses of agents are online, so that a gateway whose predecessor was killed expects those agents. An
 * address is written once, when it is new: sessions that flap write nothing. Nothing is flushed to the disk, as what the
 * kernel has survives the process.
 */
export class OnlineAddressesFile {
  /** What the file has, with what is about to be written. */
  #lines = new Map<string, Line>();
  #new: Line[] = [];
  #soon: NodeJS.Timeout | undefined;
  #tidying: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  readonly #failures = new Repeats();
  readonly #onAdded = (endpoint: OnlineEndpoint) => this.#add(endpoint);

  constructor(
    private readonly path: string,
    private readonly endpoints: EndpointRegistry,
    private readonly log: Log,
  ) {}

  /** Expects the agents whose addresses were online when the last gateway ended. To be called before agents can come. */
  async start(): Promise<void> {
    for (const line of await this.#read()) this.#lines.set(line.place, line);
    this.expectAll();
    this.endpoints.on('added', this.#onAdded);
    this.#tidying = setInterval(() => this.#tidy(), TIDY_MS).unref();
  }

  /** Expects the agents of all addresses that are not online. To be called again when agents can come: starting takes its time. */
  expectAll(): void {
    const online = new Set(this.endpoints.list().map((endpoint) => lostAddressOf(endpoint).place));
    for (const line of this.#lines.values()) if (!online.has(line.place)) this.endpoints.lost.note(line, 'restarted');
  }

  /** Writes what is online, or has been a moment ago. */
  async stop(): Promise<void> {
    this.endpoints.off('added', this.#onAdded);
    clearInterval(this.#tidying);
    clearTimeout(this.#soon);
    this.#tidy();
    await this.#writing;
  }

  #add(endpoint: OnlineEndpoint): void {
    // The database has those without an agent.
    if (endpoint.isCloud) return;
    const line = lostAddressOf(endpoint);
    const known = this.#lines.get(line.place);
    if (known?.credentialId === line.credentialId && known.needsHandshake === line.needsHandshake) return;
    this.#lines.set(line.place, line);
    this.#new.push(line);
    this.#soon ??= setTimeout(() => this.#append(), WRITE_MS).unref();
  }

  #append(): void {
    this.#soon = undefined;
    if (this.#lines.size > this.endpoints.online.size + MAX_SURPLUS) {
      this.#tidy();
      return;
    }
    const text = expectedText(this.#new);
    this.#new = [];
    this.#write(() => appendFile(this.path, text, { mode: MODE }));
  }

  /** Writes the file again, unless it has nothing too much. */
  #tidy(): void {
    const present = new Map<string, Line>();
    for (const address of this.endpoints.lost.all()) present.set(address.place, address);
    for (const endpoint of this.endpoints.list()) {
      if (!endpoint.isCloud) present.set(lostAddressOf(endpoint).place, lostAddressOf(endpoint));
    }
    if (this.#new.length === 0 && present.size === this.#lines.size) return;
    this.#lines = present;
    this.#new = [];
    this.#write(async () => {
      await writeFile(`${this.path}.tmp`, expectedText(present.values()), { mode: MODE });
      await rename(`${this.path}.tmp`, this.path);
    });
  }

  #write(write: () => Promise<void>): void {
    this.#writing = this.#writing.then(write).catch((error: unknown) => {
      const times = this.#failures.timesDue('write');
      if (times !== null) this.log.warn({ reason: messageOf(error), times }, 'addresses that are online not recorded');
    });
  }

  /** Leaves out a line that was not written to its end, and begins a new one. */
  async #read(): Promise<Line[]> {
    let text: string;
    try {
      text = await readFile(this.path, 'utf8');
    } catch (error) {
      if (!hasErrno(error, 'ENOENT'))
        this.log.warn({ reason: messageOf(error) }, 'addresses that were online cannot be read');
      return [];
    }
    if (!/(?:^|\n)$/.test(text)) this.#write(() => appendFile(this.path, '\n', { mode: MODE }));
    return expectedIn(text);
  }
}

/** Addresses whose agents are expected, for another process; see {@link expectedIn}. */
export function expectedText(addresses: Iterable<Line>): string {
  return [...addresses]
    .map(({ place, credentialId, needsHandshake }) => `${JSON.stringify({ place, credentialId, needsHandshake })}\n`)
    .join('');
}

/** What can be read of an {@link expectedText}. */
export function expectedIn(text: string): Line[] {
  return text.split('\n').flatMap(lineOf);
}

function lineOf(text: string): Line[] {
  try {
    return [Line.parse(JSON.parse(text))];
  } catch {
    return [];
  }
}
