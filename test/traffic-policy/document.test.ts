import { describe, expect, it } from 'vitest';
import { defaultsFor, PolicyInput, PolicyNotApplicable, toTrafficPolicy } from '../../src/traffic-policy/document.ts';
import { checkPolicy } from '../support/check-policy.ts';

const rule = (type: string, config?: unknown) => ({ actions: [{ type, config }] });
const headers = rule('add-headers', { headers: { 'x-a': 'b' } });
const deny = rule('deny');
const parse = (input: unknown) => PolicyInput.parse(input);

/** The places and messages of all problems. */
function problems(input: unknown): string[] {
  const result = PolicyInput.safeParse(input);
  return result.success ? [] : result.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`);
}

describe('PolicyInput', () => {
  it.each([
    {},
    { inbound: [], outbound: [] },
    { inbound: [headers], outbound: [headers], enabled: false },
    { inbound: [rule('custom-response', { content: 'x', content_type: 'text/plain' })] },
    { on_tcp_connect: [deny], on_http_request: [headers], on_http_response: [headers] },
    {
      inbound: [{ name: 'n', expressions: ["req.method == 'GET'"], actions: [{ type: 'oauth', config: { a: [1] } }] }],
    },
    { on_http_request: [{ actions: [{ type: 'deny', config: null }] }] },
    { on_http_request: [rule('add-headers', { headers: { 'x-n': 1, 'x-b': true, 'x-t': `\${req.method}` } })] },
  ])('keeps %j unchanged', (input) => {
    expect(parse(input)).toEqual(input);
  });

  it('names an unknown action and its place', () => {
    const [problem] = problems({ inbound: [deny, { actions: [{ type: 'denny' }] }] });
    expect(problem).toMatch(/^inbound\.1\.actions\.0\.type: unknown action "denny"; supported: .*deny/);
  });

  it('reports every problem at once, each with its place', () => {
    const found = problems({
      inbound: [{ actions: [] }, rule('add-headers', { headers: { 'a b': 'c' } })],
      outbound: [rule('deny', { status_code: 99 }), { actions: [{ type: 'log', config: 'x' }], extra: 1 }, 7],
      on_http_request: [],
      bogus: 1,
    });
    for (const place of [
      'inbound.0.actions: a rule needs',
      'inbound.1.actions.0.config.headers.a b: ',
      'outbound.0.actions.0.config.status_code: ',
      'outbound.1.actions.0.config: ',
      'outbound.1: Unrecognized key: "extra"',
      'outbound.2: ',
      ': Unrecognized key: "bogus"',
      ': inbound, outbound and enabled cannot be mixed',
    ]) {
      expect(found.filter((problem) => problem.startsWith(place))).toHaveLength(1);
    }
  });

  it.each([
    ['no headers', 'add-headers', { headers: {} }],
    [
      'too many headers',
      'add-headers',
      { headers: Object.fromEntries(Array.from({ length: 11 }, (_, at) => [`x-${at}`, 'v'])) },
    ],
    ['a value with a line break', 'add-headers', { headers: { 'x-a': 'b\r\nx-c: d' } }],
    ['a header that ngrok lets no policy change', 'add-headers', { headers: { 'User-Agent': 'x' } }],
    ['no config', 'add-headers', undefined],
    ['another member', 'add-headers', { headers: { a: 'b' }, header: {} }],
    ['nothing to remove', 'remove-headers', { headers: [] }],
    ['the user agent', 'remove-headers', { headers: ['user-agent'] }],
    ['an interim status', 'custom-response', { status_code: 100 }],
    ['a status that is text', 'deny', { status_code: '403' }],
    ['a body that is none', 'custom-response', { body: {} }],
  ])('rejects %s', (_what, type, config) => {
    expect(problems({ on_http_request: [rule(type, config)] })[0]).toMatch(/^on_http_request\.0\.actions\.0\.config/);
  });

  it.each([null, [], 'text', { on_http_request: {} }])('rejects %j', (input) => {
    expect(problems(input)).not.toEqual([]);
  });
});

describe('toTrafficPolicy', () => {
  it('renames the legacy phases', () => {
    expect(toTrafficPolicy(parse({ inbound: [headers], outbound: [] }), 'http')).toEqual({
      on_http_request: [headers],
      on_http_response: [],
    });
  });

  it('moves terminate-tls of the legacy shape to on_tcp_connect', () => {
    const terminate = rule('terminate-tls', {});
    expect(toTrafficPolicy(parse({ inbound: [headers, terminate] }), 'http')).toEqual({
      on_tcp_connect: [terminate],
      on_http_request: [headers],
    });
  });

  it('keeps the current shape', () => {
    const input = { on_tcp_connect: [deny], on_http_response: [headers] };
    expect(toTrafficPolicy(parse(input), 'http')).toEqual(input);
    expect(toTrafficPolicy(parse({ on_tcp_connect: [deny], on_http_request: [] }), 'tcp')).toEqual({
      on_tcp_connect: [deny],
    });
  });

  it('is empty for a disabled policy', () => {
    expect(toTrafficPolicy(parse({ enabled: false, inbound: [headers], outbound: [headers] }), 'tcp')).toEqual({});
  });

  it.each([
    ['outbound', { inbound: [], outbound: [headers] }],
    ['on_http_request', { on_http_request: [deny] }],
    ['on_http_response', { on_http_response: [headers] }],
    ['inbound[1].actions[0]', { inbound: [deny, headers] }],
    ['on_tcp_connect[0].actions[0]', { on_tcp_connect: [headers] }],
  ])('rejects %s on a tcp tunnel, with the place', (place, input) => {
    const translate = () => toTrafficPolicy(parse(input), 'tcp');
    expect(translate).toThrow(PolicyNotApplicable);
    expect(translate).toThrow(place);
  });
});

describe('defaultsFor', () => {
  const defaults = parse({
    inbound: [
      headers,
      deny,
      { ...deny, expressions: ["req.method == 'PUT'"] },
      { ...deny, expressions: ['conn.client_ip == "1.2.3.4"'] },
    ],
    outbound: [headers],
  });

  it('keeps all rules for http', () => {
    expect(defaultsFor('http', defaults)).toEqual({ on_http_request: defaults.inbound, on_http_response: [headers] });
  });

  it('keeps the rules that need no HTTP for tcp and tls', () => {
    expect(defaultsFor('tls', defaults)).toEqual({ on_tcp_connect: [defaults.inbound?.[1], defaults.inbound?.[3]] });
    expect(defaultsFor('tcp', parse({ on_http_response: [headers] }))).toEqual({});
  });

  it.each(['tcp', 'tls'] as const)('returns rules that a %s tunnel can run', (protocol) => {
    const inbound = [
      rule('deny', { status_code: 404 }),
      rule('log', { metadata: { seen: [`from\n\${req.url.path}`] } }),
      rule('log', { metadata: { seen: `\${conn.client_ip}` } }),
      rule('terminate-tls', {}),
    ];
    const document = defaultsFor(protocol, parse({ inbound }));
    const kept = [rule('deny'), inbound[2], ...(protocol === 'tls' ? [inbound[3]] : [])];
    expect(document).toEqual({ on_tcp_connect: kept });
    expect(checkPolicy(JSON.stringify(document), [protocol])).toEqual([]);
  });
});
