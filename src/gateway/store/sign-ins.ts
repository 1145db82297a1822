import type { ListFilters } from '../../management/resources/resource.ts';
import { ChangeWatch } from './sql/change-watch.ts';
import type { Database } from './sql/database.ts';
import { chosenRows, type ListedBy, type ListPart } from './sql/list-choice.ts';
import { nullable, type RowOf, Table, TouchedTable, tableOf, text } from './sql/table.ts';

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

const USERS_LISTED_BY: ListedBy = {
  searched: ['id', 'email', 'name', 'issuer', 'subject'],
  sorted: { email: 'lower(email)', name: 'lower(name)', last_login: 'last_login' },
};

/** People who have signed in at endpoints, as their identity provider calls them. */
export class ApplicationUsers extends tableOf('application_users', userColumns) {
  /** A page of those for which all filters hold. */
  chosen(before: string | null, limit: number, filters: ListFilters): ListPart<ApplicationUserRow> {
    return chosenRows(this, USERS_LISTED_BY, filters, [], { before, limit });
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

const SESSIONS_LISTED_BY: ListedBy = {
  searched: [
    ...['id', 'public_url', 'ip_address', 'user_agent'],
    "(SELECT email || ' ' || name FROM application_users WHERE application_users.id = user_id)",
  ],
  sorted: { public_url: 'public_url', expires_at: 'expires_at' },
};

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

  /** A page of those that have not expired. */
  lasting(now: string, before: string | null, limit: number, filters: ListFilters): ListPart<ApplicationSessionRow> {
    return chosenRows(this, SESSIONS_LISTED_BY, filters, [['expires_at > ?', now]], { before, limit });
  }

  /** Adds a row, and deletes expired ones. Beyond `limit` rows in all, the payer with the most loses its oldest one. */
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

const endedColumns = {
  id: text,
  created_at: text,
  host: nullable(text),
  issuer: nullable(text),
  subject: nullable(text),
  session_id: nullable(text),
  /** Of a session whose browser has signed out; null: the operator or the person has ended it. */
  payer: nullable(text),
};

/** Sign-ins at a host, those of one person of an identity provider, or one of theirs, end that began before the row. */
type EndedSignInsRow = RowOf<typeof endedColumns>;

/** Sessions that browsers have signed out of, which clients can do often. */
const MAX_SIGNED_OUT = 10_000;

/** Sign-ins that were ended before their time. Each request of a signed-in person asks, so memory has what it needs. */
export class EndedSignIns extends TouchedTable<typeof endedColumns> {
  #before = new Map<string, number>();
  readonly #changes: ChangeWatch;
  readonly #isSessionEnded: (id: string) => boolean;

  constructor(database: Database) {
    super(database, 'ended_sign_ins', endedColumns);
    this.#changes = new ChangeWatch(database);
    // Only gateways end single sessions, so no commit of a command is missed.
    this.#isSessionEnded = database.untilCommit((id) => this.count('session_id = ?', [id]) > 0);
  }

  /**
   * Ends sign-ins, inside a transaction. Of each host, person and session, only the latest end is kept, for `keepMs`: no
   * session lasts longer. Beyond the limit of sessions that browsers have signed out of, the payer with the most loses its
   * oldest one.
   */
  end(row: EndedSignInsRow, keepMs: number, limit = MAX_SIGNED_OUT): void {
    const oldest = new Date(Date.parse(row.created_at) - keepMs).toISOString();
    for (const { id } of this.where('created_at < ?', [oldest])) this.delete(id);
    const condition = 'host IS ? AND issuer IS ? AND subject IS ? AND session_id IS ?';
    const [same] = this.where(condition, [row.host, row.issuer, row.subject, row.session_id]);
    // Sign-ins may have begun since the end before, in the same second.
    const next = same === undefined ? '' : timeAfter(same.created_at);
    if (same === undefined) this.insert(row);
    else this.update({ ...same, created_at: row.created_at > next ? row.created_at : next });
    if (row.payer === null || this.count('payer IS NOT NULL', []) <= limit) return;
    const signedOut = 'FROM ended_sign_ins WHERE payer IS NOT NULL';
    const most = `(SELECT payer ${signedOut} GROUP BY payer ORDER BY COUNT(*) DESC LIMIT 1)`;
    for (const { id } of this.where(`payer = ${most} ORDER BY id LIMIT 1`, [])) this.delete(id);
  }

  /** Sign-ins that began before this, in milliseconds since 1970, have ended; 0 when none have. */
  before(host: string, issuer: string, subject: string, sessionId: string): number {
    if (this.#isSessionEnded(sessionId)) return Number.POSITIVE_INFINITY;
    this.#refresh();
    if (this.#before.size === 0) return 0;
    return Math.max(...[hostKey(host), personKey(issuer, subject)].map((key) => this.#before.get(key) ?? 0));
  }

  /** What ends here counts at once: the person may sign in again right after it. */
  #refresh(): void {
    const isTouched = this.takeTouched().size > 0;
    if (!this.#changes.hasChanged() && !isTouched) return;
    this.#before = new Map();
    for (const { host, issuer, subject, created_at } of this.where('session_id IS NULL', [])) {
      const key = host === null ? personKey(issuer ?? '', subject ?? '') : hostKey(host);
      // Stored times are whole seconds, and later rows are read later.
      this.#before.set(key, Date.parse(created_at) + 1000);
    }
  }
}

/** A second later, as stored times are whole seconds. */
function timeAfter(created_at: string): string {
  return `${new Date(Date.parse(created_at) + 1000).toISOString().slice(0, 19)}Z`;
}

const hostKey = (host: string) => `host ${host}`;
const personKey = (issuer: string, subject: string) => `person ${issuer} ${subject}`;
