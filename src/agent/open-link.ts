import { createRequire } from 'node:module';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { type ConnectorKind, isCloudAddress } from '../settings/agent-settings.ts';
import type { GatewayLink, GatewayLinkOptions } from './connectors/gateway-link.ts';

export { type GatewayLink, type GatewaySession, SessionRefused } from './connectors/gateway-link.ts';

/**
 * Opens the link to a gateway with a connector. Each one's code is loaded only when it is used; the SDK's native code
 * takes memory.
 *
 * @throws {OperatorError} when the SDK is missing or has no binary for this platform, and the gateway is ngrok's cloud
 */
export async function openLink(kind: ConnectorKind, options: GatewayLinkOptions): Promise<GatewayLink> {
  if (kind === 'native') return openNativeLink(options);
  try {
    loadSdk();
  } catch (error) {
    // The lines after the first name files of this program.
    const [reason = ''] = messageOf(error).split('\n');
    if (isCloudAddress(options.serverAddr)) throw noSdk(reason, error);
    options.log.info({ reason }, 'the SDK has no binary for this platform: using the native connector');
    return openNativeLink(options);
  }
  const { openSdkLink } = await import('./connectors/sdk/sdk-link.ts');
  return openSdkLink(options);
}

async function openNativeLink(options: GatewayLinkOptions): Promise<GatewayLink> {
  const native = await import('./connectors/native/native-session.ts');
  return native.openNativeLink(options);
}

const MISSING_SDK =
  "ngrok's cloud requires the package @ngrok/ngrok, which is not installed: install it, or use a gateway of your own";

function noSdk(reason: string, cause: unknown): OperatorError {
  // A program that embeds the agent may leave it out.
  if (reason.endsWith("'@ngrok/ngrok'")) return new OperatorError(MISSING_SDK, 1, { cause });
  return new OperatorError(
    `@ngrok/ngrok, which connects to ngrok's cloud, has no binary for this platform (${reason}): ` +
      'use a gateway of your own and set NGROK_SERVER_ADDR to its address',
    1,
    { cause },
  );
}

const require = createRequire(import.meta.url);

/**
 * Loads the SDK. Call it before the first `import` of a module that needs the SDK: when that fails, Node.js 20 rejects a
 * second promise that nobody can handle, and the process ends.
 *
 * @throws {Error} when the SDK has no binary for this platform
 */
function loadSdk(): void {
  require('@ngrok/ngrok');
}
