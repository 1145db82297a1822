import { createRequire } from 'node:module';
import { ApiError, messageOf, OperatorError } from '../lib/errors.ts';
import { withDeadline } from '../lib/time/deadline.ts';
import type { TrustedTime } from '../lib/tls/trusted-time.ts';
import { type ConnectorKind, type GatewaySettings, isCloudAddress } from '../settings/agent-settings.ts';
import type { TrafficPolicyDocument } from '../traffic-policy/document.ts';
import { type EndpointUpstream, optionsOf, TUNNEL_PROTOCOLS } from './connectors/connector.ts';
import type { GatewayLink, GatewayLinkOptions, GatewaySession } from './connectors/gateway-link.ts';

import type { GatewayRoute } from './connectors/gateway-route.ts';
import { connectToGateway } from './connectors/gateway-socket.ts';
import { GatewayTime, timeFileIn } from './join/gateway-time.ts';

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

/** The time of an agent's gateway, for a program that leaves the agent's files as they are. */
export function gatewayTimeOf(dataDir: string): GatewayTime {
  return new GatewayTime({ file: timeFileIn(dataDir), isReadOnly: true, log: null });
}

/**
 * Who proves the time to sessions with a gateway when this machine's clock is wrong; null: nobody, because no CA is pinned that
 * could.
 */
export function sessionTime(
  gateway: Extract<GatewaySettings, { kind: 'remote' }>,
  time: GatewayTime,
): TrustedTime | null {
  const { serverAddr, ownCa } = gateway;
  if (isCloudAddress(serverAddr) || ownCa === null) return null;
  return time.at(async () => {
    const { timePlace } = await import('./join/gateway-calls.ts');
    return timePlace({ ...gateway, pinned: ownCa.pem });
  });
}

/** Connects to a gateway, whose certificate is judged at the time that it proves if need be. @throws when it is not trusted */
export async function reachInTime(route: GatewayRoute, time: TrustedTime, signal: AbortSignal): Promise<void> {
  (await connectToGateway({ ...route, time }, signal)).destroy();
}

async function openNativeLink(options: GatewayLinkOptions): Promise<GatewayLink> {
  const native = await import('./connectors/native/native-session.ts');
  return native.openNativeLink(options);
}

/** The policy of a name while it is being tried. */
const CLOSED: TrafficPolicyDocument = {
  on_http_request: [{ actions: [{ type: 'deny', config: { status_code: 503 } }] }],
};
const NOBODY: EndpointUpstream = {
  connect: () => Promise.reject(new Error('not served')),
  address: async () => 'http://127.0.0.1:9',
};
/** Others of its pool are online; a trial must not join them, because it would take a share of their clients. */
const POOL_ONLINE = 'ERR_NGROK_18017';

/** What a trial of a name has shown. */
export type BindingFinding =
  | { kind: 'allowed' }
  | { kind: 'unknown'; problem: string }
  | { kind: 'refused'; problem: string; code: string };

/** Binds the name of a tunnel for a moment, with a policy that lets nobody in. Never rejects. */
export async function tryBinding(
  session: GatewaySession,
  tunnel: { protocol: string; domain: string },
  ms: number,
): Promise<BindingFinding> {
  const { domain } = tunnel;
  const protocol = TUNNEL_PROTOCOLS.find((known) => known === tunnel.protocol);
  if (protocol === undefined)
    return { kind: 'unknown', problem: `${domain}: ${tunnel.protocol} tunnels are not supported by this version` };
  const request = { protocol, domain, upstream: NOBODY, forwardsTo: 'device-agent doctor' };
  const bound = session.open({ ...request, ...(protocol === 'http' && { trafficPolicy: CLOSED }) });
  try {
    await (await withDeadline(bound, `binding ${domain}`, ms, (late) => void late.close())).close();
    return { kind: 'allowed' };
  } catch (error) {
    if (!(error instanceof ApiError)) return { kind: 'unknown', problem: messageOf(error) };
    if (error.code === POOL_ONLINE && optionsOf(tunnel).pooling) return { kind: 'allowed' };
    return { kind: 'refused', problem: `${domain}: ${error.message} (${error.code})`, code: error.code };
  }
}

const MISSING_SDK =
  "ngrok's cloud requires the package @ngrok/ngrok, which is not installed: install it, or use a gateway of your own";

function noSdk(reason: string, cause: unknown): OperatorError {
  // A program that embeds the agent may leave it out.
  if (reason.endsWith("'@ngrok/ngrok'")) return new OperatorError(MISSING_SDK, 1, { cause });
  return new OperatorError(
    `@ngrok/ngrok, which connects to ngrok's cloud, has no binary here (${reason}): install device-agent again ` +
      `without --omit=optional; if ${process.platform}-${process.arch} is not supported, use a gateway of your own and set NGROK_SERVER_ADDR to its address`,
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
