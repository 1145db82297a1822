import { describePortRange } from '../../../lib/network/port-range.ts';
import type { OPERATIONS } from '../../../management/operations.ts';
import { credentials } from '../../../management/resources/credential.ts';
import { type Device, devices } from '../../../management/resources/device.ts';
import { type EnrolmentKey, enrolmentKeys } from '../../../management/resources/enrolment.ts';
import { deviceDomain } from '../../devices/device-names.ts';
import { createEnrolmentKey, joinCode } from '../../devices/invite.ts';
import { approveDevice, deleteDevice, revokeDevice, rotateDevice, updateDevice } from '../../devices/manage-devices.ts';
import type { DeviceRow, EnrolmentKeyRow } from '../../store/devices.ts';
import { changed } from '../../store/sql/table.ts';
import type { Store } from '../../store/store.ts';
import type { ApiContext } from '../api-context.ts';
import { type ActionsOf, type ApiCaller, found } from '../operation-router.ts';
import { probeAt } from '../shown-probes.ts';
import { activeOwner } from './credential-actions.ts';
import { historyActions } from './history-actions.ts';
import { membersOf, shownPart, storedActions } from './stored-actions.ts';

type Change = { by: string; tcpHost: string };

export function deviceActions(context: ApiContext) {
  return { devices: actionsOnDevices(context), enrolmentKeys: enrolmentKeyActions(context) };
}

/** Changes are recorded with the API key that made them. */
function actionsOnDevices(context: ApiContext): ActionsOf<typeof OPERATIONS.devices> {
  const { store, live, place } = context;
  const { database, devices: rows } = store;
  const stored = (id: string) => found(rows.get(id), devices);
  const shown = (row: DeviceRow) => showDevice(context, row);
  const changeBy = ({ by }: ApiCaller): Change => ({ by, tcpHost: place.tcpHost });
  const act =
    (action: (store: Store, device: DeviceRow, change: Change) => DeviceRow) =>
    async (id: string, _body: undefined, caller: ApiCaller) => {
      const { before, after } = await database.write(() => {
        const row = stored(id);
        return { before: row.credential_id, after: action(store, row, changeBy(caller)) };
      }, caller);
      if (before !== null && after.credential_id === null) await live.revoke({ credentialIds: [before] });
      return shown(after);
    };
  return {
    getHistory: historyActions(context).ofDevice,
    get: (id) => shown(stored(id)),
    list: (before, limit, filters) => {
      const online = () => live.sessions().flatMap(({ credentialId }) => credentialId ?? []);
      return shownPart(rows.chosen(before, limit, filters, online), shown);
    },
    async update(id, body, caller) {
      const row = await database.write(() => updateDevice(store, stored(id), body, changeBy(caller)), caller);
      context.sightings.changed(id);
      const isNarrower = body.plain_names !== undefined || body.internal_names === false;
      if (isNarrower && row.credential_id !== null) await live.revoke({ narrowedId: row.credential_id });
      return shown(row);
    },
    async delete(id, _body, caller) {
      const { credential_id } = await database.write(() => {
        const row = stored(id);
        deleteDevice(store, row);
        return row;
      }, caller);
      if (credential_id !== null) await live.revoke({ credentialIds: [credential_id] });
    },
    approve: act(approveDevice),
    revoke: act(revokeDevice),
    rotate: act(rotateDevice),
  };
}

export function showDevice(context: ApiContext, stored: DeviceRow): Device {
  const { store, links, sightings, live } = context;
  const row = sightings.latest(stored);
  const session = row.credential_id === null ? undefined : live.find.sessionsOf(row.credential_id).at(-1);
  const tunnels = session ? live.find.tunnelsOf(session.id) : [];
  return {
    ...membersOf(row, devices.answer),
    uri: links.of(devices, row.id),
    domain: deviceDomain(row),
    link_setting: row.metered === null ? 'device' : row.metered ? 'metered' : 'default',
    plain_names: store.siteNames.labelsOf(row.id),
    tcp_ports: row.tcp_ports && describePortRange(row.tcp_ports),
    enrolment_key: links.refOrNull(enrolmentKeys, row.enrolment_key_id),
    credential: links.refOrNull(credentials, row.credential_id),
    rotation_pending: row.status === 'enrolled' && row.issued_generation > 0 && row.generation > row.issued_generation,
    online_since: session?.startedAt ?? null,
    last_seen_at: session ? store.now() : row.last_seen_at,
    ip: session?.ip ?? row.last_ip,
    agent_version: session?.agentVersion ?? row.agent_version,
    tunnels: tunnels.map(({ publicUrl, forwardsTo, startedAt }) => ({
      public_url: publicUrl,
      forwards_to: forwardsTo,
      started_at: startedAt,
      unreachable: publicUrl === null ? null : unreachable(context, publicUrl),
    })),
  };
}

/** What keeps clients away; null: nothing that is known. */
function unreachable(context: ApiContext, url: string): string | null {
  const probe = probeAt(context, url);
  if (probe === null || probe.reached) return null;
  return probe.message === null ? probe.stage : `${probe.stage}: ${probe.message}`;
}

/** Actions on enrolment keys. Deleting one leaves the devices that have joined with it. */
function enrolmentKeyActions(context: ApiContext): ActionsOf<typeof OPERATIONS.enrolmentKeys> {
  const { store, links, place, domains, wakeCertificateRenewal } = context;
  const { database, enrolmentKeys: rows } = store;
  const shown = ({ secret_hash: _, ...row }: EnrolmentKeyRow): EnrolmentKey => ({
    ...row,
    uri: links.of(enrolmentKeys, row.id),
    code: null,
    tcp_ports: row.tcp_ports && describePortRange(row.tcp_ports),
  });
  const stored = storedActions(context, { resource: enrolmentKeys, rows, shown });
  return {
    ...stored,
    list: (before, limit, filters) => shownPart(rows.chosen(before, limit, filters, store.now()), shown),
    async create(body, caller) {
      const { key, secret, isNewSite } = await database.write(
        () =>
          createEnrolmentKey(store, domains, { ...body, owner_id: activeOwner(context, body.owner_id) ?? undefined }),
        caller,
      );
      if (isNewSite) wakeCertificateRenewal();
      return { ...shown(key), code: joinCode(place, secret) };
    },
    update: (id, { revoked, ...body }, caller) =>
      database.write(() => {
        const row = changed(found(rows.get(id), enrolmentKeys), body);
        const next = { ...row, revoked_at: row.revoked_at ?? (revoked ? store.now() : null) };
        rows.update(next);
        return shown(next);
      }, caller),
  };
}
