import type { DeviceRow } from '../store/devices.ts';
import type { Store } from '../store/store.ts';
import { endsOf } from './device-names.ts';

/** Names that computers look up automatically in their own domain, and the gateway's one for tcp endpoints. */
const RESERVED = ['autoconfig', 'autodiscover', 'isatap', 'mta-sts', 'tcp', 'wpad'];

/** Whether a label is one of the device's own, which end in its name. */
export function isOwnLabel({ name, old_name }: Pick<DeviceRow, 'name' | 'old_name'>, label: string): boolean {
  return [name, old_name].some((own) => own !== null && label.endsWith(`-${own}`));
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
  const isKept = label.startsWith('agent-') || RESERVED.includes(label) || store.siteNames.isSite(hostname);
  return isReserved || isKept ? 'is reserved' : null;
}
