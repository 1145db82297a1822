import type { Store } from '../../gateway/offline/command-store.ts';
import { OperatorError } from '../../lib/errors.ts';
import type { ManagementClient } from '../../management/client.ts';
import type { HistoryAnswer } from '../../management/resources/history.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { timeOf } from '../command-line.ts';
import { type HistoryChoice, showHistory } from '../history-text.ts';
import { withStore } from '../settings-place.ts';
import { withGateway } from './running-gateway.ts';

/**
 * Draws what has happened at an endpoint or a device, or at all endpoints.
 *
 * @param of a URL or hostname, the name or id of a device; undefined: all endpoints
 * @throws {OperatorError} exit code 2 for a wrong time, 3 when the gateway does not run, 4 when several devices have the name
 */
export async function showGatewayHistory(
  settings: GatewayServerSettings,
  of: string | undefined,
  options: HistoryChoice,
): Promise<void> {
  const query = { from: timeOf('since', options.since), to: timeOf('until', options.until), step: options.step };
  const device = of === undefined ? null : await withStore(settings, (store) => deviceId(store, of));
  const read = (client: ManagementClient): Promise<HistoryAnswer> => {
    if (device !== null) return client.devices.getHistory(device, query);
    if (of === undefined) return client.history.get(query);
    return client.history.get({ ...query, url: of });
  };
  showHistory(of ?? 'all endpoints', await withGateway(settings, read), options);
}

function deviceId({ devices }: Store, nameOrId: string): string | null {
  const named = devices.get(nameOrId) ? [nameOrId] : devices.named(nameOrId).map(({ id }) => id);
  if (named.length > 1)
    throw new OperatorError(`several devices are called ${nameOrId}: choose one by its id: ${named.join(', ')}`, 4);
  return named[0] ?? null;
}
