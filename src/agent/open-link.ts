import { messageOf, OperatorError } from '../lib/errors.ts';
import type { ConnectorKind } from '../settings/agent-settings.ts';
import type { GatewayLink, GatewayLinkOptions } from './connectors/gateway-link.ts';

/**
 * Opens the link to a gateway with a connector. Each one's code is loaded only when it is used; the SDK's native code
 * takes memory.
 *
 * @throws {OperatorError} when the SDK has no binary for this platform and the gateway is ngrok's cloud
 */
export async function openLink(kind: ConnectorKind, options: GatewayLinkOptions): Promise<GatewayLink> {
  if (kind === 'native') return openNativeLink(options);
  let sdk: typeof import('./connectors/sdk/gateway-link.ts');
  try {
    sdk = await import('./connectors/sdk/gateway-link.ts');
  } catch (error) {
    if (options.serverAddr === null) throw noSdk(error);
    options.log.info(
      { reason: messageOf(error) },
      'the SDK has no binary for this platform: using the native connector',
    );
    return openNativeLink(options);
  }
  return sdk.openGatewayLink(options);
}

async function openNativeLink(options: GatewayLinkOptions): Promise<GatewayLink> {
  const native = await import('./connectors/native/native-link.ts');
  return native.openNativeLink(options);
}

function noSdk(cause: unknown): OperatorError {
  return new OperatorError(
    `@ngrok/ngrok, which connects to ngrok's cloud, has no binary for this platform (${messageOf(cause)}): ` +
      'use a gateway of your own and set NGROK_SERVER_ADDR to its address',
    1,
    { cause },
  );
}
