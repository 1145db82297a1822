import { ShareLink } from '../../management/resources/share-link.ts';
import { blob, columnsOf, nullable, type RowOf, tableOf, text } from './sql/table.ts';

const columns = {
  ...columnsOf(ShareLink.omit({ url: true, link: true })),
  host: text,
  /** Whose endpoints it opens: a bot user, or an authtoken without one; null: those of the operator. */
  owner: nullable(text),
  secret_hash: blob,
};

export type ShareLinkRow = RowOf<typeof columns>;

/** Expired rows that are deleted at once, at most. */
const FORGOTTEN_AT_ONCE = 20;

/** Links that let browsers in at a host; only the hashes of their secrets are stored. */
export class ShareLinksTable extends tableOf('share_links', columns) {
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
