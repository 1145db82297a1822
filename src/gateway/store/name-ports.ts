import { isWithin, type PortRange } from '../../lib/network/port-range.ts';
import type { PortMemory } from '../endpoints/tcp-port-allocator.ts';
import type { Database } from './sql/database.ts';

/** For how long after their last use ports of kept names are nobody else's, in milliseconds: devices may be off for a season. */
const KEPT_MS = 90 * 86_400_000;
/** Ports that are kept for each device, or reserved domain: one that binds name after name does not get the whole range. */
const KEPT_EACH = 20;
/** The part of a range that is kept at most, before each keeps less, but one: the rest is for those that have no port yet. */
const KEPT_SHARE = 3 / 4;

interface NamePort {
  readonly name: string;
  readonly port: number;
  /** A day. */
  readonly used_on: string;
}

/** The ports at which clients reach names that are in no DNS. A name keeps its port while its agent is offline. */
export class NamePorts implements PortMemory {
  /** By their ports: what could not be written. It comes before what the database has. */
  readonly #unsaved = new Map<number, NamePort>();

  /** @param ownersOf to whom names belong; those of nobody are left out */
  constructor(
    private readonly database: Database,
    private readonly now: () => string,
    private readonly ownersOf: (names: readonly string[]) => ReadonlyMap<string, string>,
  ) {}

  portOf(name: string): number | null {
    const unsaved = this.#unsavedOf(name);
    if (unsaved !== undefined) return unsaved.port;
    const row = this.database.get<NamePort>('SELECT * FROM name_ports WHERE name = ?', [name]);
    return row === null || this.#unsaved.has(row.port) ? null : row.port;
  }

  nameAt(port: number): string | null {
    const unsaved = this.#unsaved.get(port);
    if (unsaved !== undefined) return unsaved.name;
    const row = this.database.get<NamePort>('SELECT * FROM name_ports WHERE port = ?', [port]);
    return row === null || this.#unsavedOf(row.name) ? null : row.name;
  }

  used(): number[] {
    return this.#all().map(({ port }) => port);
  }

  isKnown(port: number): boolean {
    return this.nameAt(port) !== null;
  }

  reserved(range: PortRange): number[] {
    return this.#kept(range).map(({ port }) => port);
  }

  /** The names whose ports nobody else gets, however long they are offline. */
  keptNames(range: PortRange): ReadonlySet<string> {
    return new Set(this.#kept(range).map(({ name }) => name));
  }

  /** Gives a port to a name; it takes it from the name that had it. */
  async assign(name: string, port: number): Promise<void> {
    const own = { name, port, used_on: this.#today() };
    const before = this.#unsavedOf(name);
    if (before) this.#unsaved.delete(before.port);
    this.#unsaved.set(port, own);
    await this.#save(own);
  }

  /** Writes once a day at most: agents reconnect often, and disks wear out. */
  async remember(port: number): Promise<void> {
    const today = this.#today();
    const unsaved = this.#unsaved.get(port);
    if (unsaved !== undefined) return this.#save(unsaved);
    const sql = 'SELECT used_on FROM name_ports WHERE port = ?';
    const known = this.database.get<Pick<NamePort, 'used_on'>>(sql, [port]);
    if (known === null || known.used_on === today) return;
    await this.database.write(() => {
      this.database.run('UPDATE name_ports SET used_on = ? WHERE port = ?', [today, port]);
    });
  }

  async #save(own: NamePort): Promise<void> {
    const { name, port } = own;
    await this.database.write(() => {
      // Another name may have got the port meanwhile.
      if (this.#unsaved.get(port) !== own) return;
      this.database.run('DELETE FROM name_ports WHERE port = ? OR name = ?', [port, name]);
      this.database.run('INSERT INTO name_ports (name, port, used_on) VALUES (?, ?, ?)', [name, port, this.#today()]);
    });
    if (this.#unsaved.get(port) === own) this.#unsaved.delete(port);
  }

  #kept(range: PortRange): NamePort[] {
    const since = new Date(Date.parse(this.now()) - KEPT_MS).toISOString();
    const recent = this.#all().filter(({ used_on, port }) => used_on > since && isWithin(port, [range]));
    const owners = this.ownersOf(recent.map(({ name }) => name));
    const lastOfEach = new Map<string, NamePort[]>();
    for (const each of recent.reverse()) {
      const owner = owners.get(each.name);
      if (owner === undefined) continue;
      const own = lastOfEach.get(owner) ?? [];
      if (own.length < KEPT_EACH) lastOfEach.set(owner, [...own, each]);
    }
    const held = [...lastOfEach.values()];
    const room = (range.last - range.first + 1) * KEPT_SHARE;
    const isWithinRoom = (count: number) => held.reduce((sum, { length }) => sum + Math.min(length, count), 0) <= room;
    let each = KEPT_EACH;
    while (each > 1 && !isWithinRoom(each)) each -= 1;
    return held.flatMap((own) => own.slice(0, each));
  }

  /** Least recently used first. */
  #all(): NamePort[] {
    const unsaved = [...this.#unsaved.values()];
    const names = new Set(unsaved.map(({ name }) => name));
    const saved = this.database
      .all<NamePort>('SELECT * FROM name_ports ORDER BY used_on, port')
      .filter(({ name, port }) => !this.#unsaved.has(port) && !names.has(name));
    return [...saved, ...unsaved];
  }

  #unsavedOf(name: string): NamePort | undefined {
    for (const each of this.#unsaved.values()) if (each.name === name) return each;
    return undefined;
  }

  #today(): string {
    return this.now().slice(0, 'YYYY-MM-DD'.length);
  }
}
