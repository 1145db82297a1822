import { ChangeWatch } from './sql/change-watch.ts';
import type { Database } from './sql/database.ts';
import { nullable, type RowOf, Table, text } from './sql/table.ts';

const columns = {
  id: text,
  created_at: text,
  host: nullable(text),
  issuer: nullable(text),
  subject: nullable(text),
  session_id: nullable(text),
};

/** Sign-ins at a host, those of one person of an identity provider, or one of theirs, end that began before the row. */
export type EndedSignInsRow = RowOf<typeof columns>;

/** Sign-ins that were ended before their time, held in memory: each request of a signed-in person asks. */
export class EndedSignIns extends Table<typeof columns> {
  #before = new Map<string, number>();
  readonly #changes: ChangeWatch;

  constructor(database: Database) {
    super(database, 'ended_sign_ins', columns);
    this.#changes = new ChangeWatch(database);
  }

  /**
   * Ends sign-ins, inside a transaction. Of each host, person and session, only the latest end is kept.
   *
   * @param keepMs rows older than this are deleted: no session lasts as long
   */
  end(row: EndedSignInsRow, keepMs: number): void {
    const oldest = new Date(Date.parse(row.created_at) - keepMs).toISOString();
    for (const { id } of this.where('created_at < ?', [oldest])) this.delete(id);
    const condition = 'host IS ? AND issuer IS ? AND subject IS ? AND session_id IS ?';
    const [same] = this.where(condition, [row.host, row.issuer, row.subject, row.session_id]);
    // Sign-ins may have begun since the end before, in the same second.
    const next = same === undefined ? '' : timeAfter(same.created_at);
    if (same === undefined) this.insert(row);
    else this.update({ ...same, created_at: row.created_at > next ? row.created_at : next });
  }

  /** Sign-ins that began before this, in milliseconds since 1970, have ended; 0 when none have. */
  before(host: string, issuer: string, subject: string, sessionId: string): number {
    this.#refresh();
    if (this.#before.size === 0) return 0;
    const keys = [hostKey(host), personKey(issuer, subject), sessionKey(sessionId)];
    return Math.max(...keys.map((key) => this.#before.get(key) ?? 0));
  }

  #refresh(): void {
    if (!this.#changes.hasChanged()) return;
    this.#before = new Map();
    for (const { host, issuer, subject, session_id: session, created_at } of this.where("id > ''", [])) {
      const key = host === null ? personKey(issuer ?? '', subject ?? '') : hostKey(host);
      // Stored times are whole seconds, and later rows are read later.
      if (session === null) this.#before.set(key, Date.parse(created_at) + 1000);
      else this.#before.set(sessionKey(session), Number.POSITIVE_INFINITY);
    }
  }
}

/** A second later, as stored times are whole seconds. */
function timeAfter(created_at: string): string {
  return `${new Date(Date.parse(created_at) + 1000).toISOString().slice(0, 19)}Z`;
}

const hostKey = (host: string) => `host ${host}`;
const sessionKey = (id: string) => `session ${id}`;
const personKey = (issuer: string, subject: string) => `person ${issuer} ${subject}`;
