import type { Database } from './sql/database.ts';
import { nullable, type RowOf, Table, text } from './sql/table.ts';

const userColumns = {
  id: text,
  created_at: text,
  issuer: text,
  subject: text,
  email: text,
  name: text,
  last_login: text,
};

export type ApplicationUserRow = RowOf<typeof userColumns>;

/** People who have signed in at endpoints, as their identity provider calls them. */
export class ApplicationUsers extends Table<typeof userColumns> {
  constructor(database: Database) {
    super(database, 'application_users', userColumns);
  }

  known(issuer: string, subject: string): ApplicationUserRow | null {
    return this.where('issuer = ? AND subject = ?', [issuer, subject])[0] ?? null;
  }
}

const sessionColumns = {
  id: text,
  created_at: text,
  expires_at: text,
  user_id: text,
  public_url: text,
  host: nullable(text),
  endpoint_id: text,
  payer: text,
  ip_address: text,
  user_agent: text,
};

export type ApplicationSessionRow = RowOf<typeof sessionColumns>;

/** Old rows that are deleted with a new one, at most. */
const DELETED_AT_ONCE = 20;

/** What lists show of sessions, which are in the cookies of browsers. */
export class ApplicationSessions extends Table<typeof sessionColumns> {
  constructor(
    database: Database,
    private readonly users: ApplicationUsers,
  ) {
    super(database, 'application_sessions', sessionColumns);
  }

  /** A page of those that have not expired, newest first. */
  lasting(now: string, before: string | null, limit: number): ApplicationSessionRow[] {
    return this.where('id < ? AND expires_at > ? ORDER BY id DESC LIMIT ?', [before ?? '~', now, limit]);
  }

  /**
   * Adds a row, and deletes expired ones. Beyond the limit, the payer with the most loses its oldest one.
   *
   * @param limit rows in all
   */
  add(row: ApplicationSessionRow, limit: number): void {
    const expired = this.where('expires_at <= ? ORDER BY expires_at LIMIT ?', [row.created_at, DELETED_AT_ONCE]);
    for (const { id } of expired) this.forget(id);
    this.insert(row);
    if (this.count('id > ?', ['']) <= limit) return;
    const most = '(SELECT payer FROM application_sessions GROUP BY payer ORDER BY COUNT(*) DESC LIMIT 1)';
    for (const { id } of this.where(`payer = ${most} ORDER BY id LIMIT 1`, [])) this.forget(id);
  }

  /** Deletes a row, and that of the person when it was the last one of theirs. */
  forget(id: string): void {
    const row = this.get(id);
    if (row === null) return;
    this.delete(id);
    if (this.count('user_id = ?', [row.user_id]) === 0) this.users.delete(row.user_id);
  }
}
