import type { PortMemory } from '../endpoints/tcp-port-allocator.ts';
import type { Database } from './sql/database.ts';

/** For how long after their last use ports of kept names are nobody else's, in milliseconds: devices may be off for a season. */
const KEPT_MS = 90 * 86_400_000;

/** The ports at which clients reach names that are in no DNS. A name keeps its port while its agent is offline. */
export class NamePorts implements PortMemory {
  /** Names by their ports, which a database that cannot be written does not have. */
  readonly #unsaved = new Map<number, string>();

  constructor(
    private readonly database: Database,
    private readonly now: () => string,
    readonly isKept: (name: string) => boolean,
  ) {}

  portOf(name: string): number | null {
    for (const [port, holder] of this.#unsaved) if (holder === name) return port;
    const row = this.database.get<{ port: number }>('SELECT port FROM name_ports WHERE name = ?', [name]);
    return row === null || this.#unsaved.has(row.port) ? null : row.port;
  }

  nameAt(port: number): string | null {
    const row = this.database.get<{ name: string }>('SELECT name FROM name_ports WHERE port = ?', [port]);
    return this.#unsaved.get(port) ?? row?.name ?? null;
  }

  used(): number[] {
    return this.#rows().map(({ port }) => port);
  }

  reserved(): number[] {
    const since = new Date(Date.parse(this.now()) - KEPT_MS).toISOString();
    return this.#rows().flatMap(({ name, port, used_on }) => (used_on > since && this.isKept(name) ? [port] : []));
  }

  /** Gives a port to a name; it takes it from the name that had it. */
  async assign(name: string, port: number): Promise<void> {
    this.#unsaved.set(port, name);
    await this.database.write(() => {
      this.database.run('DELETE FROM name_ports WHERE port = ? OR name = ?', [port, name]);
      this.database.run('INSERT INTO name_ports (name, port, used_on) VALUES (?, ?, ?)', [name, port, this.#today()]);
    });
    this.#unsaved.delete(port);
  }

  /** Writes once a day at most: agents reconnect often, and disks wear out. */
  async remember(port: number): Promise<void> {
    const today = this.#today();
    const sql = 'SELECT used_on FROM name_ports WHERE port = ?';
    const known = this.database.get<{ used_on: string }>(sql, [port]);
    if (known === null || known.used_on === today) return;
    await this.database.write(() => {
      this.database.run('UPDATE name_ports SET used_on = ? WHERE port = ?', [today, port]);
    });
  }

  #rows(): { name: string; port: number; used_on: string }[] {
    return this.database.all('SELECT name, port, used_on FROM name_ports ORDER BY used_on, port');
  }

  #today(): string {
    return this.now().slice(0, 'YYYY-MM-DD'.length);
  }
}
