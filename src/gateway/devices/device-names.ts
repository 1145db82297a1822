import { LONGEST_NAME } from '../../management/resources/device.ts';
import type { CredentialRow } from '../store/accounts.ts';
import { type DeviceRow, isOfRules } from '../store/devices.ts';
import type { Store } from '../store/store.ts';

/** What a device may bind are names that end in `-<name>`, so no name may be the end of another one. */
interface Taken {
  names: ReadonlySet<string>;
  /** The ends of all names: `cabinet-7` has the end `7`. */
  ends: ReadonlySet<string>;
}

/** Whether a device can have a name: none may end in another one, or one device could bind the addresses of the other. */
export function isFree(name: string, inUse: readonly string[]): boolean {
  return isFreeAmong(name, takenBy(inUse));
}

/** The wanted name, with a number if it is not free; `isEnd`: whether a name directly below the site ends in `-<name>` */
export function freeName(wanted: string, inUse: readonly string[], isEnd: (name: string) => boolean): string {
  const taken = takenBy(inUse);
  if (isFreeAmong(wanted, taken) && !isEnd(wanted)) return wanted;
  for (let number = 2; ; number += 1) {
    const suffix = `-${number}`;
    const name = wanted.slice(0, LONGEST_NAME - suffix.length).replace(/-$/, '') + suffix;
    if (isFreeAmong(name, taken) && !isEnd(name)) return name;
  }
}

function takenBy(inUse: readonly string[]): Taken {
  return { names: new Set(inUse), ends: new Set(inUse.flatMap(endsOf)) };
}

function isFreeAmong(name: string, { names, ends }: Taken): boolean {
  return !names.has(name) && !ends.has(name) && !endsOf(name).some((end) => names.has(end));
}

/** What follows the hyphens of a name: `a-b-c` has the ends `b-c` and `c`. */
function endsOf(name: string): string[] {
  const parts = name.split('-');
  return parts.slice(1).map((_, at) => parts.slice(at + 1).join('-'));
}

/** Names that computers look up automatically in their own domain, and the gateway's one for tcp endpoints. */
const RESERVED = ['autoconfig', 'autodiscover', 'isatap', 'mta-sts', 'tcp', 'wpad'];

/**
 * Whether a name at a site that is reserved, in use or looked up by computers ends in `-<name>`: a device with this name
 * would have it among its own. The names of the device `except` do not count.
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

/** Why a device cannot bind one of its own labels, which its authtoken's rules allow; continues `<hostname> …`. */
export function ownNameProblem(store: Store, device: DeviceRow, label: string): string | null {
  const isAgent = label === `agent-${device.name}` || label === `agent-${device.old_name}`;
  const known = store.siteNames.get(`${label}.${device.site}`);
  // Without this exception, any authtoken that binds it while the device is offline would lock the device out for good.
  if (known && isOfRules(known) && !isAgent) return 'belongs to another authtoken';
  return nameProblem(store, device, label);
}

/** Why no device can have this name directly below its site, asked for or assigned; continues `<hostname> …`. */
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

type Named = Pick<DeviceRow, 'name' | 'old_name' | 'site' | 'tcp_ports' | 'internal_names'>;

export function deviceDomain({ name, site }: Pick<DeviceRow, 'name' | 'site'>): string {
  return `agent-${name}.${site}`;
}

/**
 * The ACL of a device's authtoken: its names below the site, also internal ones if it may have those, and the old ones until
 * it knows the new one; and TCP ports.
 */
export function deviceRules({ name, old_name, site, tcp_ports, internal_names }: Named, tcpHost: string): string[] {
  const zones = internal_names ? [site, `${site}.internal`] : [site];
  const rulesOf = (own: string) => zones.map((zone) => `bind:*-${own}.${zone}`);
  return [
    ...rulesOf(name),
    ...(old_name === null ? [] : rulesOf(old_name)),
    ...(tcp_ports === null ? [] : [`bind:${tcpHost}:${tcp_ports.first}-${tcp_ports.last}`]),
  ];
}

/** The rules of a device's authtoken that an operator has added. */
export function addedRules({ acl }: Pick<CredentialRow, 'acl'>, device: Named, tcpHost: string): string[] {
  const own = deviceRules(device, tcpHost);
  return acl.filter((rule) => !own.includes(rule));
}

/** The ACL of a device's authtoken after a change of the device; rules that an operator has added stay. */
export function changedRules(
  credential: Pick<CredentialRow, 'acl'>,
  before: Named,
  after: Named,
  tcpHost: string,
): string[] {
  return [...deviceRules(after, tcpHost), ...addedRules(credential, before, tcpHost)];
}
