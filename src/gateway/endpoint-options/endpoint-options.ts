import { z } from 'zod';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { formatPath, validationMessage } from '../../lib/validation-messages.ts';
import type { PolicyFrame } from '../../traffic-policy/compile-rules.ts';
import type { EndpointProtocol } from '../../traffic-policy/policy-subjects.ts';
import {
  BasicAuth,
  basicAuthRule,
  CircuitBreaker,
  circuitBreakerRule,
  FrameBuilder,
  IpRestrictionOption,
  ipRestrictionRule,
  UserAgentFilter,
  userAgentRule,
  WebhookVerification,
  webhookRule,
} from './client-options.ts';
import { HeaderChanges, headerRules, hostRewrite } from './header-options.ts';
import { ClientAuthorities, certificateRules, parseAuthorities } from './mutual-tls.ts';

/** What an endpoint's options require of the edge, apart from its address and policy. */
export interface EndpointDemands {
  readonly frame: PolicyFrame;
  /** PEM of the CAs that must have signed a client's certificate; empty: no certificate required. */
  readonly clientAuthorities: readonly string[];
  /** Whether clients speak WebSocket and the upstream gets the bytes inside. */
  readonly websocketTcp: boolean;
}

/** The Go SDK omits or sends empty members that the others send as null. */
const text = z.string().nullish();
const flag = z.boolean().nullish();
const bare = z.looseObject({}).nullish();

const Common = z.object({ IPRestriction: IpRestrictionOption.nullish() });

/** As SDKs send them in a BIND. */
const HttpOptions = Common.extend({
  Auth: text,
  BasicAuth: BasicAuth.nullish(),
  OAuth: bare,
  OIDC: bare,
  WebhookVerification: WebhookVerification.nullish(),
  UserAgentFilter: UserAgentFilter.nullish(),
  MutualTLSCA: ClientAuthorities.nullish(),
  CircuitBreaker: CircuitBreaker.nullish(),
  Compression: bare,
  RequestHeaders: HeaderChanges.nullish(),
  ResponseHeaders: HeaderChanges.nullish(),
  HostHeaderRewrite: flag,
  WebsocketTCPConverter: bare,
});

const TlsOptions = Common.extend({
  MutualTLSAtEdge: ClientAuthorities.nullish(),
  // Read where the certificate is chosen.
  TLSTermination: z.unknown().optional(),
});

/** Members about the endpoint's address, its description or the agent itself; other code reads them. */
const READ_ELSEWHERE: ReadonlySet<string> = new Set([
  ...['Addr', 'Domain', 'Hostname', 'Subdomain', 'URL', 'Name', 'Description', 'Policy', 'TrafficPolicy', 'ProxyProto'],
  ...['LocalUrlScheme', 'LocalURLScheme', 'MutualTLSAtAgent'],
]);

/** Everything that an agent can send as an option. */
export const OPTION_NAMES: readonly string[] = [
  ...Object.keys({ ...HttpOptions.shape, ...TlsOptions.shape }),
  ...READ_ELSEWHERE,
];

interface BindContext {
  readonly protocol: EndpointProtocol;
  readonly forwardsTo: string;
  /** Comma-separated ids of IP policies that restrict the endpoint; mostly empty. */
  readonly ipPolicyRef: string;
}

/** Result for endpoints without options: nearly all. */
const NO_DEMANDS: EndpointDemands = { frame: { before: {}, after: {} }, clientAuthorities: [], websocketTcp: false };

/** Translates an endpoint's `Opts` to policy rules and other requirements. @throws {RpcError}: options are never ignored */
export function demandsOf(opts: unknown, context: BindContext): EndpointDemands {
  const isMap = typeof (opts ?? {}) === 'object';
  if (isMap && context.ipPolicyRef === '' && optionsSet(opts).length === 0) return NO_DEMANDS;
  switch (context.protocol) {
    case 'tcp':
      return tcpDemands(parse(Common, opts), context);
    case 'tls':
      return tlsDemands(parse(TlsOptions, opts), context);
    default:
      return httpDemands(parse(HttpOptions, opts), context);
  }
}

function tcpDemands({ IPRestriction }: z.output<typeof Common>, { ipPolicyRef }: BindContext): EndpointDemands {
  const frame = new FrameBuilder();
  frame.before('on_tcp_connect', 'IPRestriction', ipRestrictionRule(IPRestriction, ipPolicyRef));
  return { frame: frame.build(), clientAuthorities: [], websocketTcp: false };
}

function tlsDemands(options: z.output<typeof TlsOptions>, context: BindContext): EndpointDemands {
  const clientAuthorities = parseAuthorities('MutualTLSAtEdge', options.MutualTLSAtEdge);
  return { ...tcpDemands(options, context), clientAuthorities };
}

/**
 * Access rules run before the policy, changes to requests and responses after it. ngrok changes request headers right
 * before a request leaves, and its circuit breaker counts only requests that reach the upstream.
 */
function httpDemands(options: z.output<typeof HttpOptions>, context: BindContext): EndpointDemands {
  refuseSignIn(options);
  const clientAuthorities = parseAuthorities('MutualTLSCA', options.MutualTLSCA);
  if (clientAuthorities.length > 0 && context.protocol === 'http') {
    throw new RpcError('ERR_NGROK_301', 'the option MutualTLSCA needs TLS: bind the endpoint with the scheme https');
  }
  const { IPRestriction, UserAgentFilter: filter, BasicAuth: basicAuth, Auth: legacyAuth } = options;
  const frame = new FrameBuilder();
  frame.before('on_http_request', 'IPRestriction', ipRestrictionRule(IPRestriction, context.ipPolicyRef));
  frame.before('on_http_request', 'MutualTLSCA', certificateRules(clientAuthorities));
  frame.before('on_http_request', 'UserAgentFilter', userAgentRule(filter));
  frame.before('on_http_request', 'BasicAuth', basicAuthRule(basicAuth, legacyAuth ?? ''));
  frame.before('on_http_request', 'WebhookVerification', webhookRule(options.WebhookVerification));
  frame.after('on_http_request', 'CircuitBreaker', circuitBreakerRule(options.CircuitBreaker));
  const host = options.HostHeaderRewrite ? hostRewrite(context.forwardsTo) : null;
  frame.after('on_http_request', 'RequestHeaders', headerRules('request', options.RequestHeaders, host));
  frame.after('on_http_response', 'ResponseHeaders', headerRules('response', options.ResponseHeaders, null));
  // ngrok's module supports these two; the policy action of the same name supports more.
  const compression = options.Compression
    ? [{ type: 'compress-response', config: { algorithms: ['gzip', 'deflate'] } }]
    : [];
  frame.after('on_http_response', 'Compression', compression);
  return { frame: frame.build(), clientAuthorities, websocketTcp: Boolean(options.WebsocketTCPConverter) };
}

/** Rejects OAuth and OIDC: this gateway is not registered with any identity provider, and the options need not name a client. */
function refuseSignIn({ OAuth, OIDC }: z.output<typeof HttpOptions>): void {
  if (!OAuth && !OIDC) return;
  const name = OAuth ? 'OAuth' : 'OIDC';
  throw new RpcError(
    'ERR_NGROK_365',
    `the option ${name} is not supported by this gateway; use the policy action openid-connect or oauth with a client of your own`,
  );
}

function parse<Schema extends z.ZodObject>(schema: Schema, opts: unknown): z.output<Schema> {
  const unknown = optionsSet(opts).find(([name]) => !(name in schema.shape));
  if (unknown) {
    const name = JSON.stringify(unknown[0].slice(0, 40));
    throw new RpcError('ERR_NGROK_301', `the option ${name} is not supported for this protocol`);
  }
  const parsed = schema.safeParse(opts ?? {}, { error: validationMessage });
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map(({ path, message }) => `${formatPath(path)}: ${message}`);
  throw new RpcError('ERR_NGROK_301', `the options of the endpoint are invalid: ${problems.join('; ')}`);
}

/** The options that decide how clients are treated: the same text whenever an agent binds with the same ones. */
export function clientOptionsText(opts: unknown, ipPolicyRef: string): string {
  // The answer to a bind names a certificate, which agents send back.
  const set = optionsSet(opts).filter(([name]) => name !== 'TLSTermination');
  return JSON.stringify([ipPolicyRef, ...set.sort(([one], [other]) => (one < other ? -1 : 1))]);
}

function optionsSet(opts: unknown): [name: string, value: unknown][] {
  return Object.entries(opts ?? {}).filter(([name, value]) => isSet(value) && !READ_ELSEWHERE.has(name));
}

/** SDKs send unset options in several ways: null, empty, zero or omitted. */
function isSet(value: unknown): boolean {
  return Array.isArray(value) ? value.length > 0 : Boolean(value);
}
