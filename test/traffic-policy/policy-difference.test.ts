import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { policyDifference } from '../../src/traffic-policy/policy-difference.ts';
import { linesOf } from '../../src/traffic-policy/policy-lines.ts';

const action = (type: string, config: object) => ({ on_http_request: [{ actions: [{ type, config }] }] });
const rule = (expression: string) => ({
  on_http_request: [{ expressions: [expression], actions: [{ type: 'deny' }] }],
});
const added = (policy: object) => policyDifference(null, JSON.stringify(policy));

const KEY = 's3cr3t-Pa55phrase';
const PEM = `-----BEGIN PRIVATE KEY-----\nMIIEvQ${KEY}\n-----END PRIVATE KEY-----\n`;

/** Policies with a secret in them, each at another place. */
const WITH_SECRET: Record<string, object> = {
  'basic-auth': action('basic-auth', { credentials: [`anna:${KEY}`] }),
  'basic-auth, password in a template': action('basic-auth', { credentials: [`anna:\${'${KEY}'}`] }),
  oauth: action('oauth', { provider: 'google', client_id: 'a', client_secret: KEY }),
  'openid-connect': action('openid-connect', { client_secret: KEY, authz_url_params: { session: KEY } }),
  'add-headers': action('add-headers', { headers: { authorization: `Bearer ${KEY}` } }),
  'add-headers, x-api-key': action('add-headers', { headers: { 'X-Api-Key': KEY } }),
  'add-headers, cookie': action('add-headers', { headers: { cookie: `a=${KEY}` } }),
  'add-headers, from an expression': action('add-headers', { headers: { 'x-token': `\${'${KEY}' + req.host}` } }),
  'http-request, header': action('http-request', { url: 'https://a.example', headers: { 'x-signature': KEY } }),
  'http-request, query': action('http-request', { url: 'https://a.example', query: [{ key: 'key', value: KEY }] }),
  'http-request, body': action('http-request', { url: 'https://a.example', body: `{"pass":"${KEY}"}` }),
  'URL with userinfo': action('redirect', { to: `https://anna:${KEY}@b.example/` }),
  'URL with a user alone': action('redirect', { to: `https://${KEY}@b.example/` }),
  'URL with a query': action('redirect', { to: `https://b.example/?anything=${KEY}` }),
  'verify-webhook': action('verify-webhook', { provider: 'github', secret: KEY }),
  'terminate-tls': action('terminate-tls', { server_private_key: PEM, server_certificate: 'cert' }),
  'key in a certificate': action('terminate-tls', { server_certificate: PEM }),
  'set-vars': action('set-vars', { vars: [{ upstream_password: KEY }] }),
  'set-vars with names': action('set-vars', { vars: [{ name: 'api_key', value: KEY }] }),
  'response body': action('custom-response', { body: `<p>${PEM}</p>` }),
  'number as password': action('set-vars', { vars: [{ password: 31415926 }] }),
  'expression on a header': rule(`req.headers['x-api-key'][0] == '${KEY}'`),
  'expression on a cookie': rule(`getCookieValue("session") != "${KEY}"`),
  'expression on a token, other order': rule(`"""${KEY}""" == vars.token`),
  'expression in retry_condition': action('http-request', { retry_condition: `last_attempt.res.token == r'${KEY}'` }),
  'hash in an expression': rule(`hash.sha256(req.url.query) == '${'0a1b2c3d'.repeat(8)}'`),
  'random path': action('forward-internal', { url: 'https://a.internal/hook/9f8a7d6e5c4b3a2190817263' }),
  'base64 anywhere': action('log', { metadata: { note: 'q1Xz+9/aBcD3fGhIjKlMnOpQrStUv' } }),
  UUID: action('log', { metadata: { note: '0b0e7a1c-7d49-4f0e-9a53-6f6f3f1b2c3d' } }),
};
const SECRET_PARTS = [KEY, 'Pa55phrase', '31415926', '0a1b2c3d', '9f8a7d6e', 'q1Xz', 'JKlMn', '0b0e7a1c', 'MIIEv'];

describe.each(Object.entries(WITH_SECRET))('a secret in %s', (_title, policy) => {
  const after = { ...policy, on_http_response: [] };

  it('is not shown, wherever the line is', () => {
    const texts = [
      added(policy),
      policyDifference(JSON.stringify(policy), null),
      policyDifference(JSON.stringify(policy), JSON.stringify(after)),
    ];
    for (const text of texts) for (const part of SECRET_PARTS) expect(text).not.toContain(part);
    expect(texts[0]).toContain('[masked]');
  });

  it('that another one replaces shows as changed, and not as what it is', () => {
    const other = JSON.parse(
      JSON.stringify(policy)
        .replaceAll(/Pa55phrase/g, 'Pa55phrase2')
        .replaceAll('31415926', '27182818')
        .replaceAll('0a1b2c3d', '1a1b2c3d')
        .replaceAll('9f8a7d6e', '8f8a7d6e')
        .replaceAll('q1Xz', 'q2Xz')
        .replaceAll('0b0e7a1c', '1b0e7a1c'),
    );
    const text = policyDifference(JSON.stringify(policy), JSON.stringify(other));
    expect(text).toMatch(/^-.*\[masked\]/m);
    expect(text).toMatch(/^\+.*\[masked, changed\]/m);
    for (const part of ['Pa55', '27182818', '1a1b2c3d', '8f8a7d6e', 'q2Xz', '1b0e7a1c'])
      expect(text).not.toContain(part);
  });
});

it('shows what is no secret', () => {
  const text = added({
    on_http_request: [
      {
        name: 'paths',
        expressions: ["req.url.path.startsWith('/admin') && req.method == 'POST'"],
        actions: [{ type: 'deny', config: { status_code: 403 } }],
      },
      {
        actions: [
          { type: 'restrict-ips', config: { allow: ['192.0.2.0/24'], ip_policies: [`ipp_2Xa${'9bC'.repeat(8)}`] } },
          { type: 'basic-auth', config: { credentials: [`anna:\${secrets.get('cameras', 'password')}`] } },
          {
            type: 'add-headers',
            config: { headers: { 'x-site': 'north', authorization: `Bearer \${secrets.get('a', 'b')}` } },
          },
          { type: 'rate-limit', config: { name: 'a', capacity: 30, bucket_key: ['conn.client_ip'] } },
          {
            type: 'jwt-validation',
            config: { http: { tokens: [{ type: 'jwt', method: 'header', name: 'Authorization', prefix: 'Bearer ' }] } },
          },
          { type: 'oauth', config: { provider: 'google', client_id: 'a-client', scopes: ['email'] } },
          { type: 'forward-internal', config: { url: 'https://camera-12.harbour-north.example.internal:8443' } },
          { type: 'gateway-sign-in', config: { people: ['anna@example.com'], groups: ['night-shift'] } },
        ],
      },
    ],
  });
  expect(text).not.toContain('[masked');
  for (const part of [
    "startsWith('/admin')",
    "'POST'",
    '403',
    '192.0.2.0/24',
    'ipp_2Xa9bC',
    `anna:\${secrets.get('cameras', 'password')}`,
    'x-site: north',
    `Bearer \${secrets.get('a', 'b')}`,
    'prefix: "Bearer "',
    'camera-12.harbour-north',
    'anna@example.com',
    'night-shift',
  ])
    expect(text).toContain(part);
});

it('compares policies by what they say, not by how they are written', () => {
  const policy = action('deny', { status_code: 403 });
  const yaml = `# keep it\n${stringify(policy)}`;
  expect(policyDifference(JSON.stringify(policy), yaml)).toBe('');
  const text = policyDifference(yaml, JSON.stringify(action('deny', { status_code: 404 })));
  expect(text.split('\n')).toEqual([
    '@@ -2,4 +2,4 @@',
    ' - actions:',
    '   - type: deny',
    '     config:',
    '-      status_code: 403',
    '+      status_code: 404',
  ]);
});

it('shows a policy of a TLS edge that is disabled, one that is gone, and one that cannot be read', () => {
  const value = JSON.stringify({ on_tcp_connect: [] });
  expect(policyDifference({ enabled: true, value }, { enabled: false, value })).toContain('+# disabled');
  expect(policyDifference({ enabled: true, value }, null)).toBe('@@ -1,1 +0,0 @@\n-on_tcp_connect: []');
  expect(policyDifference(null, `[${KEY}`)).toBe('@@ -0,0 +1,1 @@\n+secret: [masked]');
});

it('is no oracle: masks that stand in the policy, and control characters, are not taken for others', () => {
  const policy = action('set-vars', {
    vars: [{ password: '\ue0000\ue001' }, { note: '\ue0000\ue001[masked, changed]\u202e\u001b[31m' }],
  });
  const text = added(policy);
  expect(text).toContain('password: [masked]');
  expect(text).toContain('[masked, changed]');
  for (const character of ['\ue000', '\ue001', '\u202e', '\u001b']) expect(text).not.toContain(character);
});

it('writes lines that YAML reads as the same value', () => {
  const text = fc.oneof(
    fc.string(),
    fc.string({ unit: 'grapheme' }),
    fc.constantFrom(
      'a\nb',
      'a: b',
      '- a',
      'true',
      '~',
      '1e3',
      '0x1f',
      'x #y',
      'a\n\n',
      ' a\nb',
      '',
      '12:30',
      '=',
      '<<',
      'NaN',
      '.inf',
      '_1',
    ),
  );
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      text,
      fc.integer(),
      fc.boolean(),
      fc.constant(null),
      fc.array(tie('value')),
      fc.dictionary(text, tie('value')),
    ),
  }));
  fc.assert(
    fc.property(fc.dictionary(text, value), (any) => {
      expect(parse(linesOf(any).join('\n'), { schema: 'core' }) ?? {}).toEqual(JSON.parse(JSON.stringify(any)));
    }),
    { numRuns: 500 },
  );
});
