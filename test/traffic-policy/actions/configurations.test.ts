import { describe, expect, it } from 'vitest';
import { type GatewayAction, traitsOf } from '../../../src/traffic-policy/action-types.ts';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import { onConnect, onMessage, onRequest, onResponse, refusalOf } from './run-action.ts';

const openId = { issuer_url: 'https://idp.example.com', client_id: 'cam' };

describe('an invalid configuration is rejected', () => {
  const list = (n: number) => Array.from({ length: n }, (_, at) => `user${at}:password`);
  const limit = { name: 'n', algorithm: 'sliding_window', capacity: 1, rate: '60s', bucket_key: ['conn.client_ip'] };
  const issuer = { allow_list: [{ value: 'https://idp' }] };
  const jws = { allowed_algorithms: ['RS256'], keys: { sources: { additional_jkus: ['https://idp/jwks'] } } };
  const tokens = [{ type: 'jwt', method: 'header', name: 'Authorization', prefix: 'Bearer ' }];

  it.each<[string, unknown, string, RegExp]>([
    ['nope', {}, '2201', /actions\[0\]\.type: unknown action "nope"/],
    ['webhook-validation', {}, '2201', /use verify-webhook/],
    ['oauth', { provider: 'google' }, '2234', /config\.client_id: .*not registered at google; create a client/],
    ['oauth', { provider: 'google', client_id: 'a' }, '2234', /config\.client_secret: .*create a client/],
    [
      'oauth',
      { provider: 'myspace', client_id: 'a' },
      '2222',
      /provider: must be one of amazon, .*use openid-connect$/,
    ],
    ['openid-connect', { client_id: 'a' }, '2234', /config\.issuer_url: is missing/],
    ['openid-connect', { issuer_url: 'http://idp', client_id: 'a' }, '2226', /issuer_url: .*https/],
    ['openid-connect', { issuer_url: 'https://idp' }, '2234', /config\.client_id: is missing/],
    ['oidc', { ...openId, authz_url_params: { state: 'x' } }, '2219', /authz_url_params: state cannot be changed/],
    ['oidc', { ...openId, scopes: ['a b'] }, '2204', /scopes\[0\]: must be a scope/],
    [
      'oidc',
      { ...openId, max_session_duration: '2161h' },
      '2225',
      /max_session_duration: must be between 1s and 2160h/,
    ],
    ['oidc', { ...openId, auth_cookie_domain: 'com' }, '2204', /auth_cookie_domain: must be a domain/],
    ['gateway-sign-in', { client_id: 'cam' }, '2203', /config: unknown member "client_id"/],
    ['gateway-sign-in', { people: 'jo@example.com' }, '2228', /config\.people: must be a list/],
    ['gateway-sign-in', { groups: [] }, '2223', /config\.groups/],
    ['ai-gateway', {}, '2201', /not support/],
    ['terminate-tls', {}, '2202', /not supported in on_http_request/],
    ['compress-response', {}, '2202', /not supported in on_http_request/],
    ['deny', [], '2203', /config/],
    ['deny', { status_code: 700 }, '2215', /config\.status_code: must be at most 599, not 700$/],
    ['deny', { status_code: 403.5 }, '2228', /config\.status_code: must be a whole number, not 403\.5$/],
    ['deny', { statuscode: 404 }, '2203', /config: unknown member "statuscode"; supported: status_code$/],
    ['add-headers', undefined, '2234', /config\.headers: is missing/],
    ['add-headers', { headers: {} }, '2223', /at least one/],
    ['add-headers', { headers: Object.fromEntries(list(11).map((_, at) => [`x${at}`, '1'])) }, '2212', /at most 10/],
    ['add-headers', { headers: { 'a b': '1' } }, '2210', /header name/],
    ['add-headers', { headers: { a: '1\n' } }, '2211', /cannot carry/],
    ['add-headers', { headers: { a: `\${req.method}\n` } }, '2211', /config\.headers\.a: .*cannot carry/],
    ['add-headers', { headers: { 'User-Agent': 'x' } }, '2219', /User-Agent/],
    ['add-headers', { headers: { 'Content-Length': '5' } }, '2219', /belongs to the connection/],
    ['add-headers', { headers: { a: `\${nope}` } }, '2224', /config\.headers\.a: .*unknown variable nope/],
    ['add-headers', { headers: { a: `\${req.method` } }, '2224', /never closed/],
    ['remove-headers', { headers: ['host'] }, '2219', /host/],
    ['redirect', {}, '2234', /config\.to/],
    ['redirect', { to: '/', from: '(' }, '2261', /config\.from/],
    ['redirect', { to: '/', from: '(?=x)' }, '2261', /config\.from/],
    ['redirect', { to: '/', from: 'a{1000}{3}' }, '2261', /config\.from/],
    ['redirect', { to: '/', headers: { Location: '/other' } }, '2219', /config\.to sets location/],
    ['redirect', { to: '/', status_code: 200 }, '2215', /status_code/],
    ['restrict-ips', { allow: '10.0.0.0/8' }, '2228', /config\.allow: must be a list, not a string$/],
    ['restrict-ips', { allow: ['10.0.0.0/33'] }, '2217', /config\.allow\[0\]/],
    ['restrict-ips', { allow: ['010.0.0.1'] }, '2217', /config\.allow\[0\]/],
    ['restrict-ips', { ip_policies: ['ipp_x'] }, '2216', /ip_policies/],
    ['basic-auth', { credentials: [] }, '2223', /credentials/],
    ['basic-auth', { credentials: list(11) }, '2218', /credentials/],
    ['basic-auth', { credentials: ['a:short'] }, '2257', /credentials\[0\]/],
    ['basic-auth', { credentials: [`a:${'x'.repeat(129)}`] }, '2258', /at most 128 characters/],
    ['basic-auth', { credentials: ['longer-name:short'] }, '2257', /credentials\[0\]/],
    ['basic-auth', { credentials: ['a:password'], realm: 'caf\u00e9' }, '2204', /config\.realm/],
    ['basic-auth', { credentials: ['a:password'], realm: '\u00e9clair' }, '2204', /config\.realm/],
    ['basic-auth', { credentials: ['nocolon1234'] }, '2204', /user:password/],
    ['basic-auth', { credentials: [`\${req.method}\${req.method}`] }, '2204', /colon/],
    ['rate-limit', { ...limit, algorithm: 'token' }, '2222', /algorithm: must be "sliding_window", not "token"$/],
    ['rate-limit', { ...limit, capacity: 0 }, '2215', /capacity/],
    ['rate-limit', { ...limit, rate: '65s' }, '2204', /multiple/],
    ['rate-limit', { ...limit, rate: '30s' }, '2225', /between/],
    ['rate-limit', { ...limit, rate: 'soon' }, '2228', /duration/],
    ['rate-limit', { ...limit, name: 'x'.repeat(1024) }, '2221', /name/],
    ['rate-limit', { ...limit, bucket_key: ['nope'] }, '2200', /bucket_key\[0\]: unknown variable/],
    ['circuit-breaker', { error_threshold: 2 }, '2215', /error_threshold/],
    ['circuit-breaker', { window_duration: '3m' }, '2225', /window_duration/],
    ['circuit-breaker', { num_buckets: 20 }, '2222', /num_buckets/],
    ['circuit-breaker', { window_duration: '5s', rolling_window: '9s' }, '2203', /rolling_window/],
    ['custom-response', { body: 'a', content: 'b' }, '2203', /content/],
    ['custom-response', { content_type: 'a/b', headers: { 'Content-Type': 'a/c' } }, '2203', /content_type/],
    ['custom-response', { content_type: 'a/b', headers: 'x' }, '2228', /config\.headers/],
    ['jwt-validation', { issuer, http: { tokens }, jws: { ...jws, allowed_algorithms: ['none'] } }, '2222', /RS256/],
    ['jwt-validation', { http: { tokens }, jws }, '2234', /config\.issuer/],
    [
      'jwt-validation',
      { issuer, http: { tokens }, jws: { ...jws, keys: 5 } },
      '2204',
      /keys: must be an object, not a number, or must be a list, not a number$/,
    ],
    [
      'jwt-validation',
      { issuer, http: { tokens: [{ ...tokens[0], method: 'query' }] }, jws },
      '2222',
      /tokens\[0\]\.method/,
    ],
    ['verify-webhook', { provider: 'nobody', secret: 'x' }, '2222', /provider/],
    [
      'verify-webhook',
      { provider: 'orbit', secret: 'x' },
      '2222',
      /provider: .*cannot verify webhooks of orbit: Orbit has ended/,
    ],
    ['verify-webhook', { provider: 'github' }, '2234', /secret/],
    ['set-vars', { vars: [{ a: 1, b: 2 }] }, '2252', /vars\[0\]/],
    ['set-vars', { vars: [{ 'a-b': 1 }] }, '2252', /not a valid variable name/],
    ['set-vars', { vars: [{ a: nested(12) }] }, '2250', /nested/],
    ['log', {}, '2234', /metadata/],
    ['forward-internal', { url: 'https://a.example.com' }, '2226', /\.internal/],
    ['forward-internal', { url: 'tcp://a.internal:1' }, '2226', /protocol/],
  ])('%s %j', (type, config, code, message) => {
    const refusal = refusalOf(onRequest({ type, config }));
    expect(refusal.code).toBe(`ERR_NGROK_${code}`);
    expect(refusal.message).toMatch(message);
    expect(refusal.message).toMatch(/^on_http_request\[0\]\.actions\[0\]/);
  });

  it('restrict-ips with more than 1,000 ranges', () => {
    const restrict = (ranges: number) =>
      onRequest({ type: 'restrict-ips', config: { deny: Array(ranges).fill('10.0.0.0/8') } });
    expect(refusalOf(restrict(1_001)).message).toMatch(/config\.deny/);
    expect(() => refusalOf(restrict(1_000))).toThrow();
  });

  it.each<[string, unknown, string]>([
    ['compress-response', { algorithms: ['zstd'] }, '2214'],
    ['compress-response', { algorithms: ['compress'] }, '2214'],
    ['compress-response', { algorithms: ['gzip', 'gzip'] }, '2231'],
    ['deny', {}, '2202'],
    ['basic-auth', { credentials: ['a:password'] }, '2202'],
  ])('%s %j in on_http_response', (type, config, code) => {
    expect(refusalOf(onResponse({ type, config })).code).toBe(`ERR_NGROK_${code}`);
  });

  it('deny has no status before any HTTP', () => {
    expect(refusalOf(onConnect({ type: 'deny', config: { status_code: 403 } })).code).toBe('ERR_NGROK_2204');
  });

  it.each<[unknown, 'http' | 'tls', string]>([
    [{}, 'http', '2205'],
    [{ server_certificate: 'x' }, 'tls', '2240'],
    [{ min_version: '1.1' }, 'tls', '2222'],
    [{ server_certificate: 'x', server_private_key: 'y' }, 'tls', '2204'],
    [{ mutual_tls_certificate_authorities: ['x'] }, 'tls', '2204'],
    [{ mutual_tls_verification_strategy: 'require-any' }, 'tls', '2240'],
    [{ min_version: '1.3', max_version: '1.2' }, 'tls', '2204'],
  ])('terminate-tls %j of a %s endpoint', (config, protocol, code) => {
    expect(refusalOf(onConnect({ type: 'terminate-tls', config }), {}, protocol).code).toBe(`ERR_NGROK_${code}`);
  });
});

/** A valid configuration for every action. */
const SAMPLES: Readonly<Record<GatewayAction, unknown>> = {
  'add-headers': { headers: { a: '1' } },
  'basic-auth': { credentials: ['a:password'] },
  'circuit-breaker': { error_threshold: 0.5 },
  'close-connection': {},
  'compress-response': {},
  'custom-response': { body: 'a' },
  deny: {},
  'forward-internal': { url: 'https://a.internal' },
  'gateway-share-links': {},
  'gateway-sign-in': { people: ['jo@example.com'], groups: ['family'] },
  'gateway-status-page': { title: 'Quarry', endpoints: [{ url: 'https://cam.example.com', title: 'Camera' }] },
  'gateway-limit-bandwidth': { bandwidth: '512kbit/2Mbit' },
  'gateway-upstream': { max_connections: 1, response_timeout: '10m', host_header: 'rewrite', rewrite_redirects: false },
  'http-request': { url: 'https://a.internal/' },
  'jwt-validation': {
    issuer: { allow_list: [{ value: 'https://idp' }] },
    http: { tokens: [{ type: 'jwt', method: 'header', name: 'Authorization', prefix: 'Bearer ' }] },
    jws: { allowed_algorithms: ['RS256'], keys: { sources: { additional_jkus: ['https://idp/jwks'] } } },
  },
  log: { metadata: { a: 1 } },
  oauth: { provider: 'google', client_id: 'cam', client_secret: 's' },
  oidc: openId,
  'openid-connect': openId,
  'rate-limit': {
    name: 'n',
    algorithm: 'sliding_window',
    capacity: 1,
    rate: '60s',
    bucket_key: ['conn.client_ip'],
  },
  redirect: { to: '/' },
  'remove-headers': { headers: ['a'] },
  'request-body-find-replace': { replacements: [{ from: 'a' }] },
  'response-body-find-replace': { replacements: [{ from: 'a', to: 'b' }] },
  'restrict-ips': { allow: ['10.0.0.0/8'] },
  'set-vars': { vars: [{ a: 1 }] },
  'sse-find-replace': { replacements: [{ field: 'retry', from: 'a' }] },
  'terminate-tls': {},
  'url-rewrite': { from: '/a', to: '/b' },
  'verify-webhook': { provider: 'github', secret: 'x' },
};

describe.each(Object.entries(SAMPLES))('the action %s', (type, config) => {
  const compiles = (text: string) => {
    try {
      return compilePolicy(text, 'https') !== null;
    } catch {
      return false;
    }
  };

  it('runs in on_tcp_connect exactly when its traits say so', () => {
    const action = { type, config };
    expect(compiles(onConnect(action))).toBe(traitsOf(type)?.onConnect === true);
    const elsewhere = [onRequest(action), onResponse(action), onMessage(action)].some(compiles);
    expect(compiles(onConnect(action)) || elsewhere).toBe(true);
  });
});

function nested(depth: number): unknown {
  return depth === 0 ? 1 : [nested(depth - 1)];
}
