import type { Database } from './sql/database.ts';

/** Who may use a name directly below a site. */
export interface SiteName {
  hostname: string;
  /** The device that holds it; null: it belongs to authtokens whose rules allow it, or it was released. */
  device_id: string | null;
  /** The device from which it was released; any other one can get it. */
  released_from: string | null;
}

/** The table whose rows are shown with their names. */
const SHOWN_WITH = 'devices';

/** Whether a name belongs to authtokens whose rules allow it. */
export function isOfRules({ device_id, released_from }: SiteName): boolean {
  return device_id === null && released_from === null;
}

/** The names directly below sites of devices that somebody has or had. Change them only inside `Database.write`. */
export class SiteNames {
  constructor(
    private readonly database: Database,
    private readonly now: () => string,
  ) {}

  get(hostname: string): SiteName | null {
    return this.among([hostname])[0] ?? null;
  }

  among(hostnames: readonly string[]): SiteName[] {
    return this.database.all<SiteName>(
      'SELECT hostname, device_id, released_from FROM site_names WHERE hostname IN (SELECT value FROM json_each(?))',
      [JSON.stringify(hostnames)],
    );
  }

  /** Whether the device with this authtoken holds a name. */
  isHeldBy(hostname: string, credentialId: string): boolean {
    const sql = `SELECT 1 FROM site_names JOIN devices ON devices.id = site_names.device_id
      WHERE hostname = ? AND credential_id = ?`;
    return this.database.values(sql, [hostname, credentialId]) !== null;
  }

  /** The labels of the names that a device holds. */
  labelsOf(deviceId: string): string[] {
    const sql = 'SELECT hostname FROM site_names WHERE device_id = ? ORDER BY hostname';
    return this.database
      .all<Pick<SiteName, 'hostname'>>(sql, [deviceId])
      .map(({ hostname }) => hostname.slice(0, hostname.indexOf('.')));
  }

  countAt(site: string): number {
    return Number(this.database.values('SELECT COUNT(*) FROM site_names WHERE site = ?', [site])?.[0] ?? 0);
  }

  /**
   * Whether a name at a site that is not free ends in `-<name>`.
   *
   * @param except a device whose names do not count
   */
  hasEnding(site: string, name: string, except: string | null = null): boolean {
    const end = `-${name}.${site}`;
    const sql = `SELECT 1 FROM site_names WHERE site = ? AND substr(hostname, -length(?)) = ?
      AND released_from IS NULL AND device_id IS NOT ? LIMIT 1`;
    return this.database.values(sql, [site, end, end, except ?? '']) !== null;
  }

  /** Whether devices have joined a site or can join it. */
  isSite(site: string): boolean {
    const sql = `SELECT 1 WHERE EXISTS (SELECT 1 FROM devices WHERE site = ?)
      OR EXISTS (SELECT 1 FROM enrolment_keys WHERE site = ?)`;
    return this.database.values(sql, [site, site]) !== null;
  }

  /** Whether a domain or one below it is a site. */
  hasSiteAtOrBelow(domain: string): boolean {
    const end = `.${domain}`;
    const isBelow = 'site = ? OR substr(site, -length(?)) = ?';
    const sql = `SELECT 1 WHERE EXISTS (SELECT 1 FROM devices WHERE ${isBelow})
      OR EXISTS (SELECT 1 FROM enrolment_keys WHERE ${isBelow})`;
    return this.database.values(sql, [domain, end, end, domain, end, end]) !== null;
  }

  put({ hostname, device_id, released_from }: SiteName): void {
    const site = hostname.slice(hostname.indexOf('.') + 1);
    this.database.changes.changed(SHOWN_WITH);
    this.database.run(
      'INSERT OR REPLACE INTO site_names (hostname, site, device_id, released_from, created_at) VALUES (?, ?, ?, ?, ?)',
      [hostname, site, device_id, released_from, this.now()],
    );
  }

  /** The names that belong to authtokens whose rules allow them, in order. */
  kept(): { hostname: string; created_at: string }[] {
    return this.database.all(
      'SELECT hostname, created_at FROM site_names WHERE device_id IS NULL AND released_from IS NULL ORDER BY hostname',
    );
  }

  /** Forgets a name that belongs to such authtokens; returns whether there was one. */
  freeKept(hostname: string): boolean {
    const sql = 'DELETE FROM site_names WHERE hostname = ? AND device_id IS NULL AND released_from IS NULL';
    return this.database.run(sql, [hostname]) > 0;
  }

  /** Frees all names of a device. */
  freeAllOf(deviceId: string): void {
    this.database.changes.changed(SHOWN_WITH);
    this.database.run('DELETE FROM site_names WHERE device_id = ? OR released_from = ?', [deviceId, deviceId]);
  }
}
