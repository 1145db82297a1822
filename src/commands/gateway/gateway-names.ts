import { OperatorError } from '../../lib/errors.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print } from '../output.ts';
import { table } from '../table.ts';
import { withStore } from '../with-store.ts';

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
        `${hostname} is not kept from devices: device-agent gateway names lists those that are`,
        4,
      );
    }
    print(`${hostname} is free; the first device that asks for it gets it`);
  });
}
