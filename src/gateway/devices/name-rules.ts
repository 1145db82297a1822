import type { DeviceRow } from '../store/devices.ts';
import { isOfRules } from '../store/site-names.ts';
import type { Store } from '../store/store.ts';
import { endsOf } from './device-names.ts';

/** Names that computers look up automatically in their own domain, and the gateway's one for tcp endpoints. */
const RESERVED = ['autoconfig', 'autodiscover', 'isatap', 'mta-sts', 'tcp', 'wpad'];

/**
 * Whether a name at a site that is reserved, in use or looked up by computers ends in `-<name>`: a device with this name
 * would have it among its own.
 *
 * @param except a device whose names do not count
 */
export function isEndOfTaken(store: Store, site: string, name: string, except: string | null = null): boolean {
  const isReserved =
    store.reservedDomains.hasEnding(site, name) || RESERVED.some((label) => label.endsWith(`-${name}`));
  return isReserved || store.siteNames.hasEnding(site, name, except);
}

/** Whether a label is one of the device's own, which end in its name. */
export function isOwnLabel({ name, old_name }: Pick<DeviceRow, 'name' | 'old_name'>, label: string): boolean {
  return [name, old_name].some((own) => own !== null && label.endsWith(`-${own}`));
}

/**
 * Why a device cannot bind one of its own labels, which its authtoken's rules allow; null when it can.
 *
 * @returns continues `<hostname> …`
 */
export function ownNameProblem(store: Store, device: DeviceRow, label: string): string | null {
  const isAgent = label === `agent-${device.name}` || label === `agent-${device.old_name}`;
  const known = store.siteNames.get(`${label}.${device.site}`);
  // Without this exception, any authtoken that binds it while the device is offline would lock the device out for good.
  if (known && isOfRules(known) && !isAgent) return 'belongs to another authtoken';
  return nameProblem(store, device, label);
}

/**
 * Why no device can have this name directly below its site, asked for or assigned; null when it can.
 *
 * @param label lower case
 * @returns continues `<hostname> …`
 */
export function nameProblem(store: Store, device: DeviceRow, label: string): string | null {
  const { id, site, name, old_name } = device;
  const hostname = `${label}.${site}`;
  const holder = store.siteNames.get(hostname)?.device_id ?? id;
  if (holder !== id) return 'belongs to another device';
  const others = store.devices.namesAt(site).filter((each) => each !== name && each !== old_name);
  const ends = new Set([label, ...endsOf(label)]);
  if (others.some((other) => ends.has(other))) return 'belongs to another device';
  const isReserved = [hostname, `*.${hostname}`].some((domain) => store.reservedDomains.byName(domain) !== null);
  const isOfAgent = label.startsWith('agent-') && !isOwnLabel(device, label);
  const isKept = isOfAgent || RESERVED.includes(label) || store.siteNames.isSite(hostname);
  return isReserved || isKept ? 'is reserved' : null;
}
