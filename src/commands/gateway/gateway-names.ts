import { OperatorError } from '../../lib/errors.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { table } from '../table.ts';
import { withStore } from '../with-store.ts';

/** Prints the names below sites that no device gets, because rules of an authtoken have allowed them. */
export async function listKeptNames(settings: GatewayServerSettings, { json }: { json?: boolean }): Promise<void> {
  await withStore(settings, (store) => {
    const names = store.siteNames.kept();
    if (json) return void process.stdout.write(`${JSON.stringify(names, null, 2)}\n`);
    if (names.length === 0) return void process.stderr.write('No names are kept from devices.\n');
    const rows = names.map(({ hostname, created_at }) => [hostname, created_at]);
    process.stdout.write(`${table(['NAME', 'SINCE'], rows)}\n`);
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
    process.stdout.write(`${hostname} is free; the first device that asks for it gets it\n`);
  });
}
