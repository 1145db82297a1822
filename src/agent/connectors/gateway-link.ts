import { randomUUID } from 'node:crypto';
import type { Log } from '../../lib/log/log.ts';
import type { ProxyRules } from '../../lib/network/proxy-rules.ts';
import type { TrustedCas } from '../../lib/network/trusted-cas.ts';
import type { Clock } from '../../lib/time/clock.ts';
import type { GatewayRoute } from './gateway-route.ts';
import type { GatewaySession } from './gateway-session.ts';
import type { ProgressMonitor } from './progress-monitor.ts';

export interface GatewayLinkOptions {
  /** Called before every session, so that a changed authtoken is used from the next one on. */
  authtoken: () => string;
  /** `host[:port]` of a gateway; null: ngrok's cloud. */
  serverAddr: string | null;
  /** Null: the CA that signs the certificates of ngrok's cloud. */
  authorities: TrustedCas | null;
  proxies: ProxyRules;
  /** Whether the SDK verifies the certificates of `https://` and `tls://` upstreams that it connects to. */
  verifyUpstreamTls: boolean;
  /** The agent's version, which the gateway displays. */
  version: string;
  log: Log;
  clock: Clock;
}

/** Connects to one gateway, for any number of sessions. */
export interface GatewayLink extends GatewayRoute {
  /** Starts one session; rejects with {@link SessionRefused}. */
  connect(): Promise<GatewaySession>;
  readonly progress: ProgressMonitor;
  /** Call this when no session is left. */
  close(): void;
}

/** Names the agent to gateways. */
export const CLIENT_TYPE = 'device-agent';

/** Our gateway at once hands over the endpoints of an earlier session of the same process. */
export function sessionMetadata(): string {
  return JSON.stringify({ instance: randomUUID() });
}
