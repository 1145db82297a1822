import { OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import type { ManagementClient } from '../../management/client.ts';
import { presenceOf } from '../../management/device-presence.ts';
import { type Device, type DeviceFilters, devices as resource } from '../../management/resources/device.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print, table } from '../output.ts';
import { withStore } from '../settings-place.ts';
import { labelsOf } from './gateway-invite.ts';
import { withGateway } from './running-gateway.ts';

/** What can be done with one device. */
export type DeviceChange = 'approve' | 'revoke' | 'rotate' | 'delete';

const DONE: Readonly<Record<DeviceChange, (name: string) => string>> = {
  approve: (name) => `${name} approved; it joins within seconds`,
  revoke: (name) => `${name} revoked`,
  rotate: (name) => `${name} has to use another authtoken now; its agent fetches it within seconds when it is online`,
  delete: (name) => `${name} deleted`,
};

/** Members that are listed as they are. */
const SHOWN = Object.keys(resource.shown) as (keyof typeof resource.shown)[];

/** What a list is limited to, and how it is printed. */
export interface ListChoice extends Omit<DeviceFilters, 'version' | 'sort' | 'after'> {
  sort?: string;
  agentVersion?: string;
  json?: boolean;
}

export async function listDevices(settings: GatewayServerSettings, { json, ...chosen }: ListChoice): Promise<void> {
  const filters = filtersOf(chosen);
  const devices = await withGateway(settings, async (client) => {
    const all: Device[] = [];
    for await (const device of client.devices.all({ filters })) all.push(device);
    return all;
  });
  if (json) return void print(jsonText(devices));
  if (devices.length === 0 && Object.keys(filters).length > 0) return void note('No device matches.');
  if (devices.length === 0) {
    note(`No devices. Invite some with: ${ownCommand("gateway invite --site '*.site-a.example.com'")}`);
    return;
  }
  const rows = devices.map((device) => [
    device.name,
    `*.${device.site}`,
    stateOf(device),
    device.online_since ?? device.last_seen_at ?? '',
    ...SHOWN.map((name) => device[name] ?? ''),
    String(device.tunnels.length),
    device.plain_names.join(','),
    labelsOf(device.labels),
  ]);
  const shown = Object.values(resource.shown).map((label) => label.toUpperCase());
  const head = ['NAME', 'SITE', 'STATE', 'SINCE', ...shown, 'TUNNELS', 'NAMES', 'LABELS'];
  print(table(head, rows));
}

/** What the API calls the options. */
export function filtersOf({ agentVersion, ...chosen }: Omit<ListChoice, 'json'>) {
  return { ...chosen, ...(agentVersion !== undefined && { version: agentVersion }) };
}

function stateOf({ status, ...device }: Device): string {
  if (status !== 'enrolled') return status;
  const presence = presenceOf(device, Date.now());
  if (presence === 'never') return 'never online';
  return presence === 'away' ? `offline until ${device.data_budget?.back_at}` : presence;
}

export async function changeDevice(
  settings: GatewayServerSettings,
  wanted: string,
  change: DeviceChange,
): Promise<void> {
  const { name } = await withGateway(settings, async (client) => {
    const device = await find(client, wanted);
    await client.devices[change](device.id);
    return device;
  });
  print(DONE[change](name));
}

export async function renameDevice(settings: GatewayServerSettings, wanted: string, name: string): Promise<void> {
  const renamed = await withGateway(settings, async (client) => {
    const device = await find(client, wanted);
    return client.devices.update(device.id, { name });
  });
  print(`renamed; it becomes ${renamed.name} when this runs on it:\n  sudo device-agent join`);
}

export type LinkChoice = Device['link_setting'];

/** Says whether the link of a device is metered; `device`: that is up to the device. */
export async function setLink(settings: GatewayServerSettings, wanted: string, link: LinkChoice): Promise<void> {
  const { name } = await withGateway(settings, async (client) => {
    const { id } = await find(client, wanted);
    return client.devices.update(id, { link_setting: link });
  });
  print(link === 'device' ? `the link of ${name} is what AGENT_LINK says there` : `the link of ${name} is ${link}`);
}

/** Releases a name directly below the site of a device. */
export async function releaseName(settings: GatewayServerSettings, wanted: string, name: string): Promise<void> {
  const hostname = await withGateway(settings, async (client) => {
    const { id, site, plain_names } = await find(client, wanted);
    const label = name.toLowerCase().replace(`.${site}`, '');
    if (!plain_names.includes(label)) {
      throw new OperatorError(
        `${wanted} does not hold ${label}.${site}: ${ownCommand('gateway devices')} lists the names`,
        4,
      );
    }
    await client.devices.update(id, { plain_names: plain_names.filter((each) => each !== label) });
    return `${label}.${site}`;
  });
  print(`${hostname} released; the first other device that asks for it gets it`);
}

async function find(client: ManagementClient, wanted: string): Promise<Device> {
  const [device] = await devicesNamed(client, [wanted]);
  if (device === undefined) throw new Error('a name has a device, or is refused');
  return device;
}

/** The devices with these names or ids. @throws {OperatorError} exit code 4 when one does not exist, 2 when a name fits several */
export async function devicesNamed(client: ManagementClient, names: readonly string[]): Promise<Device[]> {
  const byName = new Map<string, Device[]>(names.map((wanted) => [wanted.toLowerCase(), []]));
  const byId = new Map<string, Device>();
  for await (const device of client.devices.all()) {
    byId.set(device.id, device);
    byName.get(device.name)?.push(device);
  }
  return names.map((wanted) => {
    const found = byName.get(wanted.toLowerCase()) ?? [];
    const [device = byId.get(wanted), other] = found;
    if (device && other) {
      const ids = found.map(({ id, site }) => `${id} (${site})`).join(', ');
      throw new OperatorError(`several devices are named ${wanted}: use the id of one: ${ids}`, 2);
    }
    if (device) return device;
    throw new OperatorError(`no device is named ${wanted}: ${ownCommand('gateway devices')} lists them`, 4);
  });
}

/** Prints the names below sites that no device gets, because rules of an authtoken have allowed them. */
export async function listKeptNames(settings: GatewayServerSettings, { json }: { json?: boolean }): Promise<void> {
  await withStore(settings, (store) => {
    const names = store.siteNames.kept();
    if (json) return void print(jsonText(names));
    if (names.length === 0) return void note('No names are kept from devices.');
    const rows = names.map(({ hostname, created_at }) => [hostname, created_at]);
    print(table(['NAME', 'SINCE'], rows));
  });
}

/**
 * Lets devices have such a name, at once, also while the gateway runs.
 *
 * @throws {OperatorError} exit code 4 when it is not kept
 */
export async function freeKeptName(settings: GatewayServerSettings, hostname: string): Promise<void> {
  await withStore(settings, async (store) => {
    const isFreed = await store.database.write(() => store.siteNames.freeKept(hostname.toLowerCase()));
    if (!isFreed) {
      throw new OperatorError(
        `${hostname} is not kept from devices: ${ownCommand('gateway names')} lists those that are`,
        4,
      );
    }
    print(`${hostname} is free; the first device that asks for it gets it`);
  });
}
