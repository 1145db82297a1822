import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { apiHost } from '../../gateway/endpoints/domain-names.ts';
import { withCommandKey } from '../../gateway/offline/command-store.ts';
import { EXIT_UNREACHABLE, OperatorError } from '../../lib/errors.ts';
import { ManagementClient } from '../../management/client.ts';
import { fetchHere } from '../../management/fetch-here.ts';
import { ManagementError } from '../../management/management-error.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { withStore } from '../settings-place.ts';

/**
 * Calls the gateway that runs on this machine, which alone knows what is online.
 *
 * @throws {OperatorError} exit code 3 when it does not run
 */
export async function withGateway<T>(
  settings: GatewayServerSettings,
  work: (client: ManagementClient) => Promise<T>,
): Promise<T> {
  const { dataDir, domain, httpsPort } = settings;
  const ca = await readFile(join(dataDir, 'gateway', 'ca.pem'), 'utf8').catch(() => '');
  const baseUrl = `https://${apiHost(domain.toLowerCase())}:${httpsPort}`;
  const fetch = fetchHere(settings, ca);
  const call = (apiKey: string) => work(new ManagementClient({ baseUrl, apiKey, fetch, retries: 1 }));
  return withStore(settings, (store) => withCommandKey(store, call)).catch((error: unknown) => {
    if (!(error instanceof ManagementError)) throw error;
    const hint = error.status === null ? '; is the gateway running?' : '';
    throw new OperatorError(`${error.message.trim()}${hint}`, error.status === null ? EXIT_UNREACHABLE : 1);
  });
}
