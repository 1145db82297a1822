import type { PortMemory } from '../endpoints/tcp-port-allocator.ts';
import type { Database } from './sql/database.ts';

/** The last use of each TCP endpoint's port, so that an offline device does not lose its port to another one. */
export class UsedTcpPorts implements PortMemory {
  constructor(
    private readonly database: Database,
    private readonly now: () => string,
  ) {}

  used(): number[] {
    const rows = this.database.all<{ port: number }>('SELECT port FROM tcp_ports ORDER BY used_on, port');
    return rows.map(({ port }) => port);
  }

  /** Writes once a day at most: agents reconnect often, and disks wear out. */
  async remember(port: number): Promise<void> {
    const today = this.now().slice(0, 'YYYY-MM-DD'.length);
    const known = this.database.get<{ used_on: string }>('SELECT used_on FROM tcp_ports WHERE port = ?', [port]);
    if (known?.used_on === today) return;
    await this.database.write(() => {
      this.database.run('INSERT OR REPLACE INTO tcp_ports (port, used_on) VALUES (?, ?)', [port, today]);
    });
  }
}
