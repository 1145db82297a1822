import type { OPERATIONS } from '../../../management/operations.ts';
import { type ShareLink, shareLinks } from '../../../management/resources/share-link.ts';
import { makeShareLink, revokeShareLink, urlOfHost } from '../../share-links/share-links.ts';
import type { ShareLinkRow } from '../../store/share-links.ts';
import type { ApiContext } from '../api-context.ts';
import { type ActionsOf, found } from '../operation-router.ts';
import { unknownId } from '../request.ts';
import { shownPart } from './stored-actions.ts';

export function shareLinkActions(context: ApiContext): { shareLinks: ActionsOf<typeof OPERATIONS.shareLinks> } {
  const { shareLinks: rows } = context.store;
  const stored = (id: string) => found(rows.get(id), shareLinks);
  const shown = (row: ShareLinkRow) => showShareLink(context, row);
  return {
    shareLinks: {
      get: (id) => shown(stored(id)),
      list: (before, limit, filters) => shownPart(rows.chosen(before, limit, filters, context.store.now()), shown),
      async create(body, caller) {
        const { row, link } = await makeShareLink(context, body, caller, null);
        return { ...shown(row), link };
      },
      async delete(id, _body, caller) {
        if (!(await revokeShareLink(context, id, caller))) throw unknownId(shareLinks);
      },
    },
  };
}

export function showShareLink(
  { links, addresses }: Pick<ApiContext, 'links' | 'addresses'>,
  { host, owner: _, secret_hash: __, ...row }: ShareLinkRow,
): ShareLink {
  return { ...row, uri: links.of(shareLinks, row.id), url: urlOfHost(host, addresses), link: null };
}
