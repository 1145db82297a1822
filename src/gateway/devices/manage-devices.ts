import type { z } from 'zod';
import { ApiError } from '../../lib/errors.ts';
import type { DeviceUpdate } from '../../management/resources/device.ts';
import type { DeviceRow } from '../store/devices.ts';
import { changed } from '../store/sql/table.ts';
import type { Store } from '../store/store.ts';
import { addedRules, changedRules, isEndOfTaken, isFree, nameProblem } from './device-names.ts';
import { withEvent } from './enrolments.ts';

interface Change {
  by: string;
  tcpHost: string;
}

/** Lets a device that waits for it join; call it inside a transaction, as the other functions here. */
export function approveDevice(store: Store, device: DeviceRow, { by }: Change): DeviceRow {
  if (device.status === 'revoked') throw conflict(`the device ${device.name} was revoked`);
  if (device.status === 'enrolled') return device;
  return save(store, withEvent({ ...device, status: 'enrolled' }, { at: store.now(), what: 'approved', by }));
}

/** Takes a device's authtoken and frees its names below the site. It cannot join again; its own name stays taken. */
export function revokeDevice(store: Store, device: DeviceRow, { by }: Change): DeviceRow {
  if (device.status === 'revoked') return device;
  if (device.credential_id !== null) store.credentials.delete(device.credential_id);
  store.siteNames.freeAllOf(device.id);
  return save(
    store,
    withEvent({ ...withoutAuthtoken(device), status: 'revoked' }, { at: store.now(), what: 'revoked', by }),
  );
}

/** Forgets a device and its authtoken; it can join again with a valid code. */
export function deleteDevice(store: Store, device: DeviceRow): void {
  if (device.credential_id !== null) store.credentials.delete(device.credential_id);
  store.devices.delete(device.id);
}

/** Takes a device's authtoken, and lets the device fetch another one with the key of its installation. */
export function rotateDevice(store: Store, device: DeviceRow, { by, tcpHost }: Change): DeviceRow {
  if (device.status !== 'enrolled') throw conflict(`the device ${device.name} is ${device.status}`);
  if (device.generation !== device.issued_generation) return device;
  const credential = device.credential_id === null ? null : store.credentials.get(device.credential_id);
  const kept_rules = credential ? addedRules(credential, device, tcpHost) : device.kept_rules;
  if (credential) store.credentials.delete(credential.id);
  const generation = device.generation + 1;
  return save(
    store,
    withEvent({ ...withoutAuthtoken(device), generation, kept_rules }, { at: store.now(), what: 'rotated', by }),
  );
}

/** After a rename, a device keeps names that it has bound until it joins again. @throws {ApiError} 400 for a taken name */
export function updateDevice(
  store: Store,
  device: DeviceRow,
  changes: z.output<typeof DeviceUpdate>,
  { by, tcpHost }: Change,
): DeviceRow {
  const { name, plain_names, link_setting, ...members } = changes;
  const metered = link_setting === undefined || link_setting === 'device' ? null : link_setting === 'metered';
  const next = changed(device, { ...members, ...(link_setting !== undefined && { metered }) });
  if (plain_names !== undefined) setPlainNames(store, next, plain_names);
  const isRenamed = name !== undefined && name !== device.name;
  const after = isRenamed ? renamed(store, next, name, by) : next;
  const credential = device.credential_id === null ? null : store.credentials.get(device.credential_id);
  if (credential && (isRenamed || after.internal_names !== device.internal_names)) {
    const acl = changedRules(credential, device, after, tcpHost);
    store.credentials.update({ ...credential, description: `device ${after.name}`, acl });
  }
  return save(store, after);
}

function renamed(store: Store, device: DeviceRow, name: string, by: string): DeviceRow {
  const others = store.devices.namesAt(device.site).filter((each) => each !== device.name && each !== device.old_name);
  if (!isFree(name, others) || isEndOfTaken(store, device.site, name, device.id)) {
    throw conflict(
      `the name ${name} is taken at ${device.site}, or a name there that is reserved or in use ends in it; choose another one`,
    );
  }
  return withEvent(
    { ...device, name, old_name: device.issued_generation > 0 ? (device.old_name ?? device.name) : null },
    { at: store.now(), what: 'renamed', by },
  );
}

/** Releases the names directly below the site that are not listed, and gives the device the others. */
function setPlainNames(store: Store, device: DeviceRow, labels: readonly string[]): void {
  const { id, site, status } = device;
  if (status === 'revoked') throw conflict(`the device ${device.name} was revoked`);
  const hostname = (label: string) => `${label}.${site}`;
  const before = store.siteNames.labelsOf(id);
  for (const label of before.filter((each) => !labels.includes(each))) {
    store.siteNames.put({ hostname: hostname(label), device_id: null, released_from: id });
  }
  for (const label of labels.filter((each) => !before.includes(each))) {
    const problem = nameProblem(store, device, label);
    if (problem !== null) throw conflict(`plain_names: ${hostname(label)} ${problem}; choose another name`);
    store.siteNames.put({ hostname: hostname(label), device_id: id, released_from: null });
  }
}

function withoutAuthtoken(device: DeviceRow): DeviceRow {
  return { ...device, credential_id: null, former_credential_id: device.credential_id ?? device.former_credential_id };
}

function save(store: Store, device: DeviceRow): DeviceRow {
  store.devices.update(device);
  return device;
}

function conflict(message: string): ApiError {
  return new ApiError(400, 'ERR_GATEWAY_DEVICE_STATE', message);
}
