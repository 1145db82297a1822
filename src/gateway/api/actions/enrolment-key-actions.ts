import { describePortRange } from '../../../lib/network/port-range.ts';
import { type EnrolmentKey, enrolmentKeys } from '../../../management/resources/enrolment-key.ts';
import { joinCode } from '../../devices/gateway-place.ts';
import { createEnrolmentKey } from '../../devices/invite.ts';
import type { EnrolmentKeyRow } from '../../store/enrolment-keys.ts';
import { changed } from '../../store/sql/changed.ts';
import type { ApiContext } from '../api-context.ts';
import { type Actions, found } from '../resource-router.ts';
import { activeOwner } from './credential-actions.ts';
import { storedActions } from './stored-actions.ts';

/** Actions on enrolment keys. Deleting one leaves the devices that have joined with it. */
export function enrolmentKeyActions(context: ApiContext): Actions<typeof enrolmentKeys> {
  const { store, links, place, domains, wakeCertificateRenewal } = context;
  const { database, enrolmentKeys: rows } = store;
  const shown = ({ secret_hash: _, ...row }: EnrolmentKeyRow): EnrolmentKey => ({
    ...row,
    uri: links.of(enrolmentKeys, row.id),
    code: null,
    tcp_ports: row.tcp_ports && describePortRange(row.tcp_ports),
  });
  const { get, page, remove } = storedActions(database, { resource: enrolmentKeys, rows, shown });
  return {
    get,
    page,
    remove,
    async create(body) {
      const { key, secret, isNewSite } = await database.write(() =>
        createEnrolmentKey(store, domains, { ...body, owner_id: activeOwner(context, body.owner_id) ?? undefined }),
      );
      if (isNewSite) wakeCertificateRenewal();
      return { ...shown(key), code: joinCode(place, secret) };
    },
    update: (id, { revoked, ...body }) =>
      database.write(() => {
        const row = changed(found(rows.get(id), enrolmentKeys), body);
        const next = { ...row, revoked_at: row.revoked_at ?? (revoked ? store.now() : null) };
        rows.update(next);
        return shown(next);
      }),
  };
}
