import { setTimeout as delay } from 'node:timers/promises';
import { OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import type { ManagementClient } from '../../management/client.ts';
import type { BulkAction, BulkActionCreate, BulkActionName } from '../../management/resources/bulk-action.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print, table } from '../output.ts';
import { changeDevice, type DeviceChange, devicesNamed, filtersOf, type ListChoice } from './gateway-devices.ts';
import { withGateway } from './running-gateway.ts';

/** Which devices, and how it is done. */
export interface BulkChoice extends Omit<ListChoice, 'sort'> {
  all?: boolean;
  set?: Record<string, string>;
  remove?: string[];
  dryRun?: boolean;
  yes?: boolean;
}

const POLL_MS = 300;

/**
 * Does something with one device, with several, or with all that filters choose.
 *
 * @throws {OperatorError} exit code 1 when it failed for a device, 2 unless the choice is clear and confirmed
 */
export async function changeDevices(
  settings: GatewayServerSettings,
  action: BulkActionName,
  names: readonly string[],
  { dryRun, yes, json, all, set, remove, ...chosen }: BulkChoice,
): Promise<void> {
  const filter = filtersOf(chosen);
  const isFiltered = all === true || Object.keys(filter).length > 0;
  if (isFiltered === names.length > 0)
    throw new OperatorError('which devices: name some, or choose them by options such as --site, or --all', 2);
  const [name, another] = names;
  if (isSingle(action) && name !== undefined && another === undefined && !dryRun && !json)
    return changeDevice(settings, name, action);
  const ended = await withGateway(settings, async (client) => {
    const choice = {
      action,
      ...(isFiltered ? { filter } : { device_ids: await idsOf(client, names) }),
      ...(set && { labels: set }),
      ...(remove && { remove_labels: remove }),
    } as BulkActionCreate;
    const counted = await client.bulkActions.count(choice);
    const { devices, online, unfit } = counted;
    const count = `${devices} ${devices === 1 ? 'device' : 'devices'}, ${online} online${unfit > 0 ? `; ${action} is not possible for ${unfit}` : ''}`;
    if (dryRun) {
      print(json ? jsonText(counted) : count);
      return null;
    }
    if (isFiltered && !yes) throw new OperatorError(`${count}: nothing was done; add --yes to do it`, 2);
    note(count);
    return finished(client, await client.bulkActions.create({ ...choice, expected_devices: devices }));
  });
  if (ended === null) return;
  if (json) print(jsonText(ended));
  else print(`${ended.action}: done for ${ended.done} of ${ended.devices}`);
  if (!json && ended.failures.length > 0)
    print(
      table(
        ['NAME', 'ID', 'REASON'],
        ended.failures.map((each) => [each.name, each.device_id, each.reason]),
      ),
    );
  if (ended.state === 'cancelled') throw new OperatorError(`cancelled: ${ended.end_reason}; ${ended.left} are left`, 1);
  if (ended.failed > 0) throw new OperatorError(`failed for ${ended.failed} of ${ended.devices} devices`, 1);
}

function isSingle(action: BulkActionName): action is DeviceChange {
  return action !== 'label' && action !== 'restart' && action !== 'disconnect';
}

async function idsOf(client: ManagementClient, names: readonly string[]): Promise<string[]> {
  const found = await devicesNamed(client, names);
  return found.map(({ id }) => id);
}

/** Waits until it has ended. When the command ends before, the gateway goes on. */
async function finished(client: ManagementClient, begun: BulkAction): Promise<BulkAction> {
  let action = begun;
  note(`${begun.id}: end it with: ${ownCommand(`gateway devices cancel ${begun.id}`)}`);
  while (action.state === 'running') {
    await delay(POLL_MS);
    action = await client.bulkActions.get(begun.id);
  }
  return action;
}

/** Ends one that goes on. */
export async function cancelBulkAction(settings: GatewayServerSettings, id: string): Promise<void> {
  const { state, done, devices } = await withGateway(settings, (client) => client.bulkActions.cancel(id));
  print(`${state}: done for ${done} of ${devices}`);
}
