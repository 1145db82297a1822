import { describe, expect, it } from 'vitest';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import type { PolicyError } from '../../../src/traffic-policy/steps.ts';
import { checkPolicy } from '../../support/check-policy.ts';
import { connectionFrom, ENDPOINT } from '../fake-request.ts';
import {
  bodyOf,
  headerIn,
  onConnect,
  onRequest,
  onResponse,
  respondWith,
  runRequest,
  runResponse,
  statusOf,
} from './run-action.ts';

describe('restrict-ips', () => {
  it.each<[string, object, string, number | string]>([
    ['allowed', { allow: ['203.0.113.0/24'] }, '203.0.113.7', 'passed on'],
    ['not allowed', { allow: ['203.0.113.0/24'] }, '198.51.100.1', 403],
    ['allowed and denied', { allow: ['0.0.0.0/0'], deny: ['203.0.113.7'] }, '203.0.113.7', 403],
    ['allowed by a bare address', { allow: ['203.0.113.7'] }, '203.0.113.7', 'passed on'],
    ['allowed in IPv6', { allow: ['2001:db8::/32'] }, '2001:db8:1::1', 'passed on'],
    ['allowed, with an IPv4-mapped address', { allow: ['203.0.113.0/24'] }, '::ffff:203.0.113.7', 'passed on'],
    ['in the other IP version', { allow: ['0.0.0.0/0'] }, '2001:db8::1', 403],
    ['not allowed, without enforcement', { allow: ['10.0.0.0/8'], enforce: false }, '203.0.113.7', 'passed on'],
    ['not in a list with denials only', { deny: ['10.0.0.0/8'] }, '203.0.113.7', 403],
    ['allowed by an IP policy', { ip_policies: ['ipp_1'] }, '192.0.2.9', 'passed on'],
    ['denied by an IP policy', { allow: ['0.0.0.0/0'], ip_policies: ['ipp_1'] }, '192.0.2.66', 403],
    ['allowed by an expression', { allow: [`\${conn.client_ip}`] }, '203.0.113.7', 'passed on'],
    [
      'allowed by an expression that is a list',
      { allow: [`\${['10.0.0.0/8', conn.client_ip]}`] },
      '203.0.113.7',
      'passed on',
    ],
  ])('decides on a client that is %s', async (_, config, clientIp, result) => {
    const rules = [
      { cidr: '192.0.2.0/24', action: 'allow' },
      { cidr: '192.0.2.66', action: 'deny' },
    ] as const;
    const ports = { ipPolicies: (ids: readonly string[]) => (ids[0] === 'ipp_1' ? rules : null) };
    const fake = { connection: connectionFrom(clientIp), headers: ['X-Forwarded-For', '203.0.113.7'] };
    const { outcome } = await runRequest(onRequest({ type: 'restrict-ips', config }), fake, ports);
    expect(statusOf(outcome)).toBe(result);
    if (result === 403) expect(outcome).toMatchObject({ code: 'ERR_NGROK_3203' });
  });

  it('applies changes of an IP policy immediately', () => {
    let rules: readonly { cidr: string; action: 'allow' | 'deny' }[] = [{ cidr: '0.0.0.0/0', action: 'allow' }];
    const text = onConnect({ type: 'restrict-ips', config: { ip_policies: ['ipp_1'] } });
    const policy = compilePolicy(text, 'tcp', { ports: { ipPolicies: () => rules } });
    const connect = () => policy.onTcpConnect?.({ connection: connectionFrom(), endpoint: ENDPOINT });
    expect(connect()).toBeUndefined();
    rules = [{ cidr: '203.0.113.7/32', action: 'deny' }];
    expect(connect()).toEqual({ kind: 'close' });
  });

  it.each<[string, object, string]>([
    ['an expression does not return an address range', { allow: [`\${req.method}`] }, 'ERR_NGROK_2217'],
    ['an expression returns a list with another value', { allow: [`\${[1]}`] }, 'ERR_NGROK_2217'],
    ['its IP policy was deleted', { ip_policies: ['ipp_1'] }, 'ERR_NGROK_2216'],
  ])('fails closed when %s', async (_, config, code) => {
    const lists = [[], null];
    const ports = { ipPolicies: () => lists.shift() ?? null };
    const { outcome } = await runRequest(onRequest({ type: 'restrict-ips', config }), {}, ports);
    expect(outcome).toMatchObject({ kind: 'error', status: 500, code });
  });

  it.each<[object, number]>([
    [{ deny: ['10.0.0.0/8'] }, 1],
    [{ allow: ['10.0.0.0/8'] }, 0],
    [{ ip_policies: ['ipp_1'] }, 0],
    [{ allow: ['10.0.0.0/8'], ip_policies: ['ipp_1'] }, 0],
  ])('warns when %j allows no client: %i times', (config, warnings) => {
    const text = onRequest({ type: 'restrict-ips', config });
    expect(checkPolicy(text, ['https'], { ports: { ipPolicies: () => [] } })).toHaveLength(warnings);
  });

  it('rejects in the phase of the response, too', () => {
    const text = onResponse({ type: 'restrict-ips', config: { allow: ['10.0.0.0/8'] } });
    const response = { status: 200, headers: [] };
    expect(runResponse(text, response).outcome).toMatchObject({ status: 403 });
    const inside = { connection: connectionFrom('10.1.2.3') };
    expect(runResponse(text, response, inside).outcome).toBeUndefined();
  });

  it('records its decision and the matching range', async () => {
    const text = onRequest(
      { type: 'restrict-ips', config: { allow: ['203.0.0.0/8'], enforce: false } },
      respondWith('json.encode(actions.ngrok.restrict_ips)'),
    );
    expect(JSON.parse(bodyOf((await runRequest(text)).outcome))).toMatchObject({
      action: 'allow',
      matched_cidr: '203.0.0.0/8',
    });
  });
});

describe('basic-auth', () => {
  const basic = (credentials: string) => ['Authorization', `Basic ${Buffer.from(credentials).toString('base64')}`];
  const config = { credentials: ['jo:correct horse', 'al:battery:staple'], realm: 'the "yard"' };

  it.each<[string, string[], number | string]>([
    ['the right password', basic('jo:correct horse'), 'passed on'],
    ['a password with a colon', basic('al:battery:staple'), 'passed on'],
    ['a wrong password', basic('jo:wrong horse'), 401],
    ["another user's password", basic('jo:battery:staple'), 401],
    ['no password', [], 401],
    ['no colon', basic('jo'), 401],
    ['another scheme', ['Authorization', 'Bearer abc'], 401],
    ['invalid base64', ['Authorization', 'Basic ???'], 401],
    ['two blanks', ['Authorization', basic('jo:correct horse')[1]?.replace(' ', '  ') ?? ''], 'passed on'],
    ['text after the password', ['Authorization', `${basic('jo:correct horse')[1]} x`], 401],
    ['text before the scheme', ['Authorization', `x${basic('jo:correct horse')[1]}`], 401],
    ['two headers', [...basic('jo:correct horse'), ...basic('root:other')], 401],
  ])('decides on a request with %s', async (_, headers, result) => {
    const { outcome } = await runRequest(onRequest({ type: 'basic-auth', config }), { headers });
    expect(statusOf(outcome)).toBe(result);
    if (result !== 401) return;
    expect(outcome).toMatchObject({ code: 'ERR_NGROK_3401' });
    expect(headerIn((outcome as PolicyError).headers, 'www-authenticate')).toBe('Basic realm="the \\"yard\\""');
  });

  it.each<[string[], object]>([
    [basic('jo:correct horse'), { presented: true, username: 'jo', authorized: true }],
    [basic('jo:wrong horse'), { presented: true, username: 'jo', authorized: false }],
    [[], { presented: false, username: '', authorized: false }],
  ])('records the credentials in headers %j as %j', async (headers, credentials) => {
    const text = onRequest(
      { type: 'basic-auth', config: { ...config, enforce: false } },
      respondWith('json.encode(actions.ngrok.basic_auth.credentials)'),
    );
    expect(JSON.parse(bodyOf((await runRequest(text, { headers })).outcome))).toEqual(credentials);
  });

  it('records its result for later rules, also in multi-line expressions', async () => {
    const text = `
      on_http_request:
        - actions:
            - { type: basic-auth, config: { credentials: ["jo:correct horse"], enforce: false } }
        - expressions:
            - |-
              req.method == 'GET' &&
              !(
              actions.ngrok.basic_auth.credentials.authorized)
          actions: [{ type: deny }]
    `;
    expect(statusOf((await runRequest(text)).outcome)).toBe(403);
    expect((await runRequest(text, { headers: basic('jo:correct horse') })).outcome).toBeUndefined();
  });

  it('leaves the decision to later rules without enforcement', async () => {
    const text = JSON.stringify({
      on_http_request: [
        { actions: [{ type: 'basic-auth', config: { ...config, enforce: false } }] },
        {
          expressions: ['!actions.ngrok.basic_auth.credentials.authorized'],
          actions: [{ type: 'deny', config: { status_code: 404 } }],
        },
      ],
    });
    expect(statusOf((await runRequest(text)).outcome)).toBe(404);
    expect((await runRequest(text, { headers: basic('jo:correct horse') })).outcome).toBeUndefined();
  });

  it('accepts credentials from expressions, but no empty passwords', async () => {
    const text = onRequest({ type: 'basic-auth', config: { credentials: [`jo:\${secrets.get('v', 'p')}`] } });
    const secret = (_: string, name: string) => (name === 'p' ? 'longenough' : null);
    expect((await runRequest(text, { headers: basic('jo:longenough') }, { secret })).outcome).toBeUndefined();
    const empty = await runRequest(text, { headers: basic('jo:') }, { secret: () => '' });
    expect(empty.outcome).toMatchObject({ status: 500, code: 'ERR_NGROK_2257' });
  });
});
