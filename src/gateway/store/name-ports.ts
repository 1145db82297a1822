import type { PortMemory } from '../endpoints/tcp-port-allocator.ts';
import type { Database } from './sql/database.ts';

/** For how long after their last use ports of kept names are nobody else's, in milliseconds: devices may be off for a season. */
const KEPT_MS = 90 * 86_400_000;
/** Ports that are kept for each device, or reserved domain: one that binds name after name does not get the whole range. */
const KEPT_EACH = 20;

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

  reserved(): number[] {
    return this.#kept().map(({ port }) => port);
  }

  /** The names whose ports nobody else gets, however long they are offline. */
  keptNames(): ReadonlySet<string> {
    return new Set(this.#kept().map(({ name }) => name));
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

  #kept(): NamePort[] {
    const since = new Date(Date.parse(this.now()) - KEPT_MS).toISOString();
    const recent = this.#all().filter(({ used_on }) => used_on > since);
    const owners = this.ownersOf(recent.map(({ name }) => name));
    const counts = new Map<string, number>();
    return recent.reverse().filter(({ name }) => {
      const owner = owners.get(name);
      if (owner === undefined) return false;
      const count = (counts.get(owner) ?? 0) + 1;
      counts.set(owner, count);
      return count <= KEPT_EACH;
    });
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
