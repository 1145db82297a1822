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
  /** Of a session whose browser has signed out; null: the operator or the person has ended it. */
  payer: nullable(text),
};

/** Sign-ins at a host, those of one person of an identity provider, or one of theirs, end that began before the row. */
export type EndedSignInsRow = RowOf<typeof columns>;

/** Sessions that browsers have signed out of, which clients can do often. */
const MAX_SIGNED_OUT = 10_000;

/** Sign-ins that were ended before their time. Each request of a signed-in person asks, so memory has what it needs. */
export class EndedSignIns extends Table<typeof columns> {
  #before = new Map<string, number>();
  readonly #changes: ChangeWatch;
  readonly #isSessionEnded: (id: string) => boolean;

  constructor(database: Database) {
    super(database, 'ended_sign_ins', columns);
    this.#changes = new ChangeWatch(database);
    // Only gateways end single sessions, so no commit of a command is missed.
    this.#isSessionEnded = database.untilCommit((id) => this.count('session_id = ?', [id]) > 0);
  }

  /**
   * Ends sign-ins, inside a transaction. Of each host, person and session, only the latest end is kept. Beyond the limit of
   * sessions that browsers have signed out of, the payer with the most loses its oldest one.
   *
   * @param keepMs rows older than this are deleted: no session lasts as long
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

  #refresh(): void {
    if (!this.#changes.hasChanged()) return;
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
