import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { demandsOf } from '../../../src/gateway/endpoint-options/endpoint-options.ts';
import { compilePolicy, NO_POLICY } from '../../../src/traffic-policy/engine.ts';
import type { PolicyConnect } from '../../../src/traffic-policy/policy-subjects.ts';
import { TestEdge } from '../../support/edge.ts';
import { ask } from '../../support/http-request.ts';

const HTTP = { protocol: 'http', forwardsTo: '', ipPolicyRef: '' } as const;

let edge: TestEdge;
let names = 0;

beforeAll(async () => {
  edge = await TestEdge.start();
});
afterAll(() => edge.close());

/** Binds an endpoint with options that the JavaScript SDK cannot send. */
async function serve(opts: object, forwardsTo = ''): Promise<string> {
  const host = `o${++names}.localhost`;
  const { frame } = demandsOf(opts, { ...HTTP, forwardsTo });
  await edge.serve(host, (req, res) => res.end(req.headers.host), { frame });
  return host;
}

describe('options that the JavaScript SDK cannot set', () => {
  it('accept basic auth credentials in the legacy form', async () => {
    const host = await serve({ Auth: 'ann:password1' });
    expect((await ask(edge.httpPort, host)).status).toBe(401);
    const authorization = `Basic ${Buffer.from('ann:password1').toString('base64')}`;
    expect((await ask(edge.httpPort, host, { headers: { authorization } })).status).toBe(200);
    expect(() => demandsOf({ Auth: 'password1' }, HTTP)).toThrow('a user name is empty');
  });

  it('rewrite the Host header to the upstream, if it is an http or https URL', async () => {
    const host = await serve({ HostHeaderRewrite: true }, 'http://camera.lan:8080/x');
    expect((await ask(edge.httpPort, host)).body).toBe('camera.lan:8080');
    const plain = await serve({ HostHeaderRewrite: false }, 'http://camera.lan:8080/x');
    expect((await ask(edge.httpPort, plain)).body).toBe(plain);
    expect(() => demandsOf({ HostHeaderRewrite: true }, { ...HTTP, forwardsTo: 'app://host/node' })).toThrow(
      /HostHeaderRewrite: the upstream is not an http or https URL/,
    );
  });

  it('reject hashed passwords', () => {
    const BasicAuth = { credentials: [{ username: 'ann', hashed_password: 'JDJhJDEw' }] };
    expect(() => demandsOf({ BasicAuth }, HTTP)).toThrow('hashed passwords are not supported');
  });

  it('restrict clients by referenced IP policies', () => {
    const { frame } = demandsOf({}, { ...HTTP, ipPolicyRef: 'ipp_1' });
    const ports = { ipPolicies: () => [{ cidr: '10.0.0.0/8', action: 'allow' } as const] };
    expect(compilePolicy(null, 'http', { frame, ports }).onHttpRequest).not.toBeNull();
    expect(() => compilePolicy(null, 'http', { frame })).toThrow('names an unknown IP policy');
  });
});

describe('all options', () => {
  it('are ignored when unset, in all ways SDKs express it', () => {
    const unset = {
      Compression: null,
      BasicAuth: null,
      IPRestriction: { allow_cidrs: null, deny_cidrs: [] },
      Auth: '',
    };
    for (const opts of [unset, {}, null, undefined, { CircuitBreaker: { error_threshold: 0 } }]) {
      const { frame } = demandsOf(opts, HTTP);
      expect(compilePolicy(null, 'http', { frame })).toBe(NO_POLICY);
    }
  });

  it('are refused when unknown or meant for another protocol', () => {
    expect(() => demandsOf({ FirewallLevel: 9 }, HTTP)).toThrow('the option "FirewallLevel" is not supported');
    expect(() => demandsOf({ BasicAuth: { credentials: [] } }, { ...HTTP, protocol: 'tcp' })).toThrow('"BasicAuth"');
    expect(() => demandsOf({ TLSTermination: { cert: 'x' } }, HTTP)).toThrow('"TLSTermination"');
    expect(() => demandsOf({ FirewallLevel: 0, Others: [], More: '', Yet: null }, HTTP)).not.toThrow();
  });

  it.each<[string, unknown]>([
    ['opts', 5],
    ['BasicAuth.credentials', { BasicAuth: { credentials: [] } }],
    ['BasicAuth.credentials[0].username', { BasicAuth: { credentials: [{ username: 5 }] } }],
    ['IPRestriction.allow_cidrs', { IPRestriction: { allow_cidrs: '10.0.0.0/8' } }],
    ['CircuitBreaker.error_threshold', { CircuitBreaker: { error_threshold: 'half' } }],
    ['Compression', { Compression: 'yes' }],
    ['RequestHeaders.add[0]', { RequestHeaders: { add: [5] } }],
    ['UserAgentFilter.deny', { UserAgentFilter: { deny: {} } }],
    ['MutualTLSCA.mutual_tls_ca', { MutualTLSCA: {} }],
    ['WebhookVerification.provider', { WebhookVerification: { secret: 's' } }],
    ['HostHeaderRewrite', { HostHeaderRewrite: 'rewrite' }],
  ])('are refused when they are malformed: %s', (place, opts) => {
    const problem = place === 'opts' ? 'the options of the endpoint are invalid' : `${place}: `;
    expect(() => demandsOf(opts, HTTP)).toThrow(problem);
  });
});

describe('options of tcp and tls endpoints', () => {
  it.each(['tcp', 'tls'] as const)('restrict addresses when a connection arrives: %s', (protocol) => {
    const IPRestriction = { allow_cidrs: ['10.0.0.0/8'], deny_cidrs: ['10.9.0.0/16'] };
    const { frame } = demandsOf({ IPRestriction }, { ...HTTP, protocol });
    const policy = compilePolicy(null, protocol, { frame });
    const from = (clientIp: string) =>
      policy.onTcpConnect?.({ connection: { clientIp }, endpoint: {} } as PolicyConnect)?.kind;
    expect([from('10.1.2.3'), from('10.9.2.3'), from('192.0.2.1')]).toEqual([undefined, 'close', 'close']);
    expect(() => demandsOf({ IPRestriction: { deny_cidrs: ['::/0'] } }, { ...HTTP, protocol })).toThrow(
      'IPRestriction',
    );
  });

  it('run before the endpoint’s own policy', () => {
    const { frame } = demandsOf({ IPRestriction: { allow_cidrs: ['10.0.0.0/8'] } }, { ...HTTP, protocol: 'tcp' });
    const logged: unknown[] = [];
    const ports = { onLog: (entry: unknown) => logged.push(entry) };
    const text = JSON.stringify({ on_tcp_connect: [{ actions: [{ type: 'log', config: { metadata: { a: 'b' } } }] }] });
    const policy = compilePolicy(text, 'tcp', { frame, ports });
    const connect = (clientIp: string) =>
      policy.onTcpConnect?.({ connection: { clientIp }, endpoint: { id: 'ep_1' } } as PolicyConnect);
    connect('192.0.2.1');
    expect(logged).toHaveLength(0);
    connect('10.0.0.1');
    expect(logged).toHaveLength(1);
  });
});
