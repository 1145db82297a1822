import { z } from 'zod';
import { RpcError } from '../../agent-protocol/rpc-error.ts';
import { inPlainWords, placeOf } from '../../lib/plain-words.ts';
import type { PolicyFrame } from '../../traffic-policy/policy-frame.ts';
import type { EndpointProtocol } from '../../traffic-policy/policy-subjects.ts';
import {
  BasicAuth,
  basicAuthRule,
  CircuitBreaker,
  circuitBreakerRule,
  IpRestriction,
  ipRestrictionRule,
  UserAgentFilter,
  userAgentRule,
  WebhookVerification,
  webhookRule,
} from './client-options.ts';
import { type AddedHeaders, HeaderChanges, headerRules, hostRewrite } from './header-options.ts';
import { ClientAuthorities, certificateRules, parseAuthorities } from './mutual-tls.ts';
import { FrameBuilder } from './option-rules.ts';

/** What the options of an endpoint ask of the edge, beside name and policy. */
export interface EndpointDemands {
  /** Runs around the endpoint's own policy. */
  readonly frame: PolicyFrame;
  /** PEM of the authorities that must have signed a client's certificate; empty: none is asked for. */
  readonly clientAuthorities: readonly string[];
  /** Whether clients speak WebSocket and the upstream what is in it. */
  readonly websocketTcp: boolean;
}

/** Go leaves out, or sends empty, what the others send as null. */
const text = z.string().nullish();
const flag = z.boolean().nullish();
/** An option without anything to configure. */
const bare = z.looseObject({}).nullish();

/** Options of all kinds of endpoints. */
const Common = z.object({ IPRestriction: IpRestriction.nullish() });

/** As the SDKs send them with BIND; what is not named here concerns others, or nobody. */
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
  // Read where the endpoint gets its certificate.
  TLSTermination: z.unknown().optional(),
});

/** Members that say where an endpoint is, what it is called or what the agent itself does; they are read elsewhere. */
const OF_OTHERS: ReadonlySet<string> = new Set([
  ...['Addr', 'Domain', 'Hostname', 'Subdomain', 'URL', 'Name', 'Description', 'Policy', 'TrafficPolicy', 'ProxyProto'],
  ...['LocalUrlScheme', 'LocalURLScheme', 'MutualTLSAtAgent'],
]);

/** What else of a request to bind the options depend on. */
export interface BindContext {
  readonly protocol: EndpointProtocol;
  /** What the agent shows as its upstream. */
  readonly forwardsTo: string;
  /** IP policies by which the endpoint is restricted, too; mostly empty. */
  readonly ipPolicyRef: string;
}

/** Of an endpoint with none of twenty options, as nearly all are. */
const NO_DEMANDS: EndpointDemands = { frame: { before: {}, after: {} }, clientAuthorities: [], websocketTcp: false };

/**
 * Translates an endpoint's options to rules and demands.
 *
 * @param opts `Opts` of a request to bind, as it came
 * @throws {RpcError} when one of them is invalid, or cannot be carried out: an option is never ignored
 */
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
 * Who may come in is decided before the policy runs, what becomes of a request and its response after it: ngrok changes
 * request headers immediately before a request leaves, and the circuit breaker counts what reaches the upstream alone.
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
  addHeaderRules(frame, headerRules('request', options.RequestHeaders, host), options.ResponseHeaders);
  // ngrok's module knows these two, and the policy action of the same name more.
  const compression = options.Compression
    ? [{ type: 'compress-response', config: { algorithms: ['gzip', 'deflate'] } }]
    : [];
  frame.after('on_http_response', 'Compression', compression);
  return { frame: frame.build(), clientAuthorities, websocketTcp: Boolean(options.WebsocketTCPConverter) };
}

function addHeaderRules(
  frame: FrameBuilder,
  request: AddedHeaders,
  response: z.output<typeof HeaderChanges> | null | undefined,
): void {
  frame.after('on_http_request', 'RequestHeaders', request.rules);
  frame.after('on_http_response', 'RequestHeaders', request.responseRules);
  frame.after('on_http_response', 'ResponseHeaders', headerRules('response', response, null).rules);
}

/** Signing in with another service takes a client of that service's, which this gateway is not. */
function refuseSignIn({ OAuth, OIDC }: z.output<typeof HttpOptions>): void {
  if (!OAuth && !OIDC) return;
  const name = OAuth ? 'OAuth' : 'OIDC';
  throw new RpcError(
    'ERR_NGROK_365',
    `this gateway does not support the option ${name}; basic auth, mutual TLS and the policy action jwt-validation also say who may come in`,
  );
}

function parse<Schema extends z.ZodObject>(schema: Schema, opts: unknown): z.output<Schema> {
  const unknown = optionsSet(opts).find(([name]) => !(name in schema.shape));
  if (unknown) {
    const name = JSON.stringify(unknown[0].slice(0, 40));
    throw new RpcError('ERR_NGROK_301', `this gateway has no option ${name} for endpoints of this kind`);
  }
  const parsed = schema.safeParse(opts ?? {}, { error: inPlainWords });
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map(({ path, message }) => `${placeOf(path)}: ${message}`);
  throw new RpcError('ERR_NGROK_301', `the options of the endpoint are invalid: ${problems.join('; ')}`);
}

/** The options that ask for something. */
function optionsSet(opts: unknown): [name: string, value: unknown][] {
  return Object.entries(opts ?? {}).filter(([name, value]) => isSet(value) && !OF_OTHERS.has(name));
}

/** SDKs say in several ways that they ask for nothing. */
function isSet(value: unknown): boolean {
  return Array.isArray(value) ? value.length > 0 : Boolean(value);
}
