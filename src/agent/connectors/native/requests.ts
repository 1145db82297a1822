import { LARGEST_WINDOW } from '../../../agent-protocol/credit-window.ts';
import type { TrafficPolicyDocument } from '../../../traffic-policy/document.ts';
import type { EndpointRequest } from '../connector.ts';
import { CLIENT_TYPE } from '../gateway-link.ts';

// Both requests are what `@ngrok/ngrok` 1.7.0 sends for the same settings, `StreamWindow`, `SecondLink`, `RequestFeed`, `Nodes` and `LegNumber`; a test
// compares them.

const NANOSECONDS_PER_S = 1e9;
const NO_HANDLER = 'the agent has not defined a callback for this operation';
const SYSTEMS: Readonly<Record<string, string>> = { win32: 'windows' };
const MACHINES: Readonly<Record<string, string>> = { x64: 'x86_64', arm64: 'aarch64', ia32: 'x86' };

export interface AuthOptions {
  authtoken: string;
  /** Of an earlier session; empty for the first. */
  clientId: string;
  version: string;
  metadata: string;
  heartbeatIntervalS: number;
  heartbeatToleranceS: number;
  /** Above 0 for a session beside the first one. */
  number: number;
}

export function authRequest(options: AuthOptions): object {
  const { version } = options;
  return {
    Version: ['3', '2'],
    ClientId: options.clientId,
    Extra: {
      OS: SYSTEMS[process.platform] ?? process.platform,
      Arch: MACHINES[process.arch] ?? process.arch,
      AuthToken: options.authtoken,
      Version: version,
      Hostname: '',
      UserAgent: `${CLIENT_TYPE}/${version}`,
      Metadata: options.metadata,
      Cookie: '',
      HeartbeatInterval: options.heartbeatIntervalS * NANOSECONDS_PER_S,
      HeartbeatTolerance: options.heartbeatToleranceS * NANOSECONDS_PER_S,
      UpdateUnsupportedError: NO_HANDLER,
      StopUnsupportedError: NO_HANDLER,
      RestartUnsupportedError: NO_HANDLER,
      ProxyType: '',
      MutualTLS: false,
      ServiceRun: false,
      ConfigVersion: '',
      CustomInterface: false,
      CustomCAs: false,
      ClientType: CLIENT_TYPE,
      StreamWindow: LARGEST_WINDOW,
      SecondLink: true,
      RequestFeed: true,
      Nodes: true,
      ...(options.number > 0 && { LegNumber: options.number }),
    },
  };
}

export const NOT_SUPPORTED = { Error: NO_HANDLER };

export function bindRequest(request: EndpointRequest): object {
  const { binding, app_protocol, pooling, metadata } = request.options ?? {};
  return {
    Id: '',
    Proto: request.protocol === 'http' ? 'https' : request.protocol,
    ForwardsTo: request.forwardsTo,
    ForwardsProto: app_protocol ?? '',
    Opts: optionsOf(request),
    Extra: {
      Token: '',
      IPPolicyRef: '',
      Metadata: metadata ?? '',
      Bindings: binding === undefined ? [] : [binding],
      PoolingEnabled: pooling === true,
    },
  };
}

function optionsOf({ protocol, domain = '', trafficPolicy, options }: EndpointRequest): object {
  const common = {
    ProxyProto: Number(options?.proxy_proto ?? 0),
    IPRestriction: null,
    TrafficPolicy: policyText(trafficPolicy),
  };
  if (protocol === 'tcp') return { Addr: domain, ...common };
  const named = { Domain: domain, Hostname: '', Subdomain: '', ...common };
  if (protocol === 'tls') {
    return { ...named, MutualTLSAtAgent: false, MutualTLSAtEdge: null, TLSTermination: null };
  }
  return {
    ...named,
    Auth: '',
    HostHeaderRewrite: false,
    LocalUrlScheme: null,
    Compression: null,
    CircuitBreaker: null,
    BasicAuth: null,
    OAuth: null,
    OIDC: null,
    WebhookVerification: null,
    MutualTLSCA: null,
    RequestHeaders: null,
    ResponseHeaders: null,
    WebsocketTCPConverter: null,
    UserAgentFilter: null,
  };
}

/** Null without rules. */
export function policyText(policy: TrafficPolicyDocument | undefined): string | null {
  return Object.values(policy ?? {}).some((rules) => rules.length > 0) ? JSON.stringify(policy) : null;
}
