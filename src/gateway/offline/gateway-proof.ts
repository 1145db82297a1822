import { parseKeys, SecretsBox } from '../../lib/secrets-box.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { nodeAsker } from '../edge/relays/remote-endpoints.ts';
import { apiHost } from '../endpoints/domain-names.ts';

/**
 * Makes a function that asks a gateway something that it answers to those of its cluster only.
 *
 * @param now milliseconds of the shared database's clock
 */
export function gatewayProof(
  settings: GatewayServerSettings,
  now: () => number,
): (gateway: { id: string; host: string; port: number }) => Promise<unknown> {
  const ask = nodeAsker('doctor', boxOf(settings), apiHost(settings.domain), now);
  return (gateway) => ask(gateway, 'counted');
}

/** What all gateways of a cluster can open. */
export function boxOf({ encryptionKey }: GatewayServerSettings): SecretsBox {
  return new SecretsBox(parseKeys(encryptionKey ?? '', 'GATEWAY_ENCRYPTION_KEY'));
}
