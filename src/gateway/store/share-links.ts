import { ShareLink, type ShareLinkFilters } from '../../management/resources/share-link.ts';
import { chosenRows, conditionsOf, type ListedBy, type ListPart } from './sql/list-choice.ts';
import { blob, columnsOf, nullable, type RowOf, tableOf, text } from './sql/table.ts';

const columns = {
  ...columnsOf(ShareLink.omit({ url: true, link: true })),
  host: text,
  /** Whose endpoints it opens: a bot user, or an authtoken without one; null: those of the operator. */
  owner: nullable(text),
  secret_hash: blob,
};

export type ShareLinkRow = RowOf<typeof columns>;

const LISTED_BY: ListedBy = {
  searched: ['id', 'host', 'description', 'metadata', 'created_by'],
  sorted: { url: 'host', expires_at: 'expires_at', last_used_at: 'last_used_at', uses: "printf('%012d', uses)" },
};

/** Expired rows that are deleted at once, at most. */
const FORGOTTEN_AT_ONCE = 20;

/** Links that let browsers in at a host; only the hashes of their secrets are stored. */
export class ShareLinksTable extends tableOf('share_links', columns) {
  /** A page of those for which all filters hold. @param now RFC 3339 */
  chosen(before: string | null, limit: number, filters: ShareLinkFilters, now: string): ListPart<ShareLinkRow> {
    const further = conditionsOf(filters, {
      state: (state) => [
        "CASE WHEN expires_at <= ? THEN 'expired' WHEN uses >= max_uses THEN 'used_up' ELSE 'valid' END = ?",
        ...[now, state],
      ],
    });
    return chosenRows(this, LISTED_BY, filters, further, { before, limit });
  }

  /** @param owner see the column */
  ofOwner(owner: string | null): ShareLinkRow[] {
    return this.where('owner IS ? ORDER BY id DESC', [owner]);
  }

  countOfOwner(owner: string | null): number {
    return this.count('owner IS ?', [owner]);
  }

  /** Deletes some of the links that have expired by a time, inside a transaction of nobody's. */
  forgetExpired(now: string): void {
    const expired = this.where('expires_at <= ? ORDER BY expires_at LIMIT ?', [now, FORGOTTEN_AT_ONCE]);
    for (const { id } of expired) this.delete(id);
  }
}
