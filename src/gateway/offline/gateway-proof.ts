import { parseKeys, SecretsBox } from '../../lib/secrets-box.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { type NodeAsker, nodeAsker } from '../edge/relays/remote-endpoints.ts';
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
  // While the key is changed, a gateway may know one of them only.
  const askers = keysOf(settings).map((key) => nodeAsker('doctor', new SecretsBox(key), apiHost(settings.domain), now));
  return async (gateway) => {
    const [ask, ...others] = askers as [NodeAsker, ...NodeAsker[]];
    let answer = ask(gateway, 'counted');
    for (const other of others) answer = answer.catch(() => other(gateway, 'counted'));
    return answer;
  };
}

/** What all gateways of a cluster can open. */
export function boxOf(settings: GatewayServerSettings): SecretsBox {
  return new SecretsBox(keysOf(settings));
}

function keysOf({ encryptionKey }: GatewayServerSettings): Buffer[] {
  return parseKeys(encryptionKey ?? '', 'GATEWAY_ENCRYPTION_KEY');
}
