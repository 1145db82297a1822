import { readdirSync, readFileSync } from 'node:fs';
import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/lib/time/clock.ts';
import { compilePolicy, NO_POLICY, PolicyRefused } from '../../src/traffic-policy/engine.ts';
import type { PolicyTrouble } from '../../src/traffic-policy/ports.ts';
import { checkPolicy } from '../support/check-policy.ts';
import { connectionFrom, ENDPOINT, requestFor, responseOf } from './fake-request.ts';

const deny = { actions: [{ type: 'deny' }] };

describe('a document', () => {
  it.each([null, '', '  \n'])('compiles to the empty policy when it is %j', (text) => {
    expect(compilePolicy(text, 'https')).toBe(NO_POLICY);
  });

  it.each([
    '{}',
    'on_http_request: []',
    'on_http_request:\n',
    '{"inbound": [], "outbound": []}',
    '{"on_event_stream_message": []}',
  ])('without rules has no phases: %j', (text) => {
    expect(compilePolicy(text, 'https')).toEqual(NO_POLICY);
  });

  it.each([
    ['JSON', '{"on_http_request": [{"actions": [{"type": "deny"}]}]}'],
    ['YAML', 'on_http_request:\n  - name: no one # ever\n    actions:\n      - type: deny\n'],
    ['YAML in braces', '{on_http_request: [{actions: [{type: deny, config: null}]}]}'],
    [
      'the legacy shape',
      '{"enabled": true, "inbound": [{"expressions": [], "actions": [{"type": "deny"}]}], "outbound": []}',
    ],
    [
      'the Rust SDK',
      '{"Inbound": [{"Name": "x", "Expressions": [], "Actions": [{"Type": "deny", "Config": {"status_code": 403}}]}], "Outbound": []}',
    ],
  ])('can be %s', async (_, text) => {
    expect(await compilePolicy(text, 'https').onHttpRequest?.(requestFor())).toMatchObject({ status: 403 });
  });

  it('of the legacy shape can be disabled', () => {
    expect(compilePolicy(JSON.stringify({ enabled: false, inbound: [deny] }), 'https')).toEqual(NO_POLICY);
  });

  it.each([
    '{"credentials": ["user:s3cret" x]}',
    '{"credentials": ["user:s3cret]}',
    "{'credentials': 'user:s3cret'",
    'credentials: "user" "user:s3cret"',
    'credentials: [\n"user:s3cret"\nactions: %s3cret',
  ])('is rejected without a quotation when it cannot be parsed: %s', (text) => {
    const [problem] = checkPolicy(text, ['https']);
    expect(problem?.message).toMatch(/^the policy is neither JSON nor YAML: ./);
    expect(problem?.message).not.toContain('s3cret');
  });

  it.each<[string, string, 'https' | 'tcp', string, RegExp]>([
    ['no map', '[]', 'https', '2236', /not a map/],
    ['neither JSON nor YAML', '{"a": ', 'https', '2236', /neither JSON nor YAML/],
    ['an unknown phase', '{"on_request": []}', 'https', '2236', /on_request/],
    ['a map for a phase', '{"on_http_request": {}}', 'https', '2236', /on_http_request: must be a list/],
    ['both shapes', JSON.stringify({ inbound: [deny], on_http_request: [deny] }), 'https', '2236', /cannot be mixed/],
    [
      'a rule without actions',
      '{"on_http_request": [{"actions": []}]}',
      'https',
      '2206',
      /on_http_request\[0\]\.actions/,
    ],
    ['too many rules', JSON.stringify({ on_http_request: Array(101).fill(deny) }), 'https', '2264', /on_http_request/],
    [
      'too many actions',
      JSON.stringify({ on_http_request: [{ actions: Array(21).fill({ type: 'log' }) }] }),
      'https',
      '2255',
      /actions/,
    ],
    [
      'too many expressions',
      JSON.stringify({ on_http_request: [{ expressions: Array(21).fill('true'), ...deny }] }),
      'https',
      '2265',
      /expressions/,
    ],
    ['a phase of HTTP for TCP', JSON.stringify({ on_http_request: [deny] }), 'tcp', '2230', /on_http_request/],
    [
      'an action of HTTP for TCP',
      '{"inbound": [{"actions": [{"type": "redirect", "config": {"to": "/"}}]}]}',
      'tcp',
      '2205',
      /inbound\[0\]\.actions\[0\]/,
    ],
    [
      'other actions for messages of a stream',
      JSON.stringify({ on_event_stream_message: [{ actions: [{ type: 'deny' }] }] }),
      'https',
      '2202',
      /deny is not supported in on_event_stream_message/,
    ],
    [
      'unreachable actions',
      JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }, { type: 'deny' }] }] }),
      'https',
      '2207',
      /can never run/,
    ],
    [
      'two authentications',
      JSON.stringify({
        on_http_request: Array(2).fill({ actions: [{ type: 'basic-auth', config: { credentials: ['a:password'] } }] }),
      }),
      'https',
      '2239',
      /on_http_request\[1\]/,
    ],
  ])('is rejected for %s', (_, text, protocol, code, message) => {
    expect(() => compilePolicy(text, protocol)).toThrow(message);
    expect(checkPolicy(text, [protocol])[0]).toMatchObject({ severity: 'error', code: `ERR_NGROK_${code}` });
  });

  it('of an internal endpoint cannot have on_tcp_connect', () => {
    const text = JSON.stringify({ on_tcp_connect: [deny] });
    expect(checkPolicy(text, ['https'], { internal: true })[0]?.code).toBe('ERR_NGROK_2262');
    expect(checkPolicy(text, ['tcp'], { internal: true })).toEqual([]);
  });

  it('is rejected with all problems at once, each with its place', () => {
    const rules = [
      { expressions: ['nope'], actions: [{ type: 'terminate-tls' }] },
      { expressions: ['true', '1 +'], actions: [{ type: 'deny', config: { status_code: 1 } }, { type: 'nope' }] },
    ];
    const places = checkPolicy(JSON.stringify({ inbound: rules }), ['https']).map(({ place }) => place);
    expect(places).toEqual([
      'inbound[0].expressions[0]',
      'inbound[1].expressions[1]',
      'inbound[1].actions[0].config.status_code',
      'inbound[1].actions[1].type',
    ]);
  });
});

describe('checkPolicy', () => {
  it('finds nothing in a valid policy', () => {
    expect(checkPolicy(JSON.stringify({ on_http_request: [deny], on_tcp_connect: [deny] }), ['http', 'https'])).toEqual(
      [],
    );
  });

  it('reports problems that only some protocols have', () => {
    const findings = checkPolicy(JSON.stringify({ on_http_request: [deny] }), ['https', 'tls']);
    expect(findings).toEqual([expect.objectContaining({ code: 'ERR_NGROK_2230', place: 'on_http_request' })]);
  });

  it('warns about a key that may be missing', () => {
    const text = JSON.stringify({ on_http_request: [{ expressions: ["req.headers['x'][0] == 'a'"], ...deny }] });
    expect(checkPolicy(text, ['https'])).toEqual([
      expect.objectContaining({ severity: 'warning', message: expect.stringMatching(/lacks the key/) }),
    ]);
  });

  it.each(["'x' in req.headers && req.headers['x'][0] == 'a'", "has(req.headers['x']) && req.headers['x'][0] == 'a'"])(
    'does not warn about %s',
    (expression) => {
      const text = JSON.stringify({ on_http_request: [{ expressions: [expression], ...deny }] });
      expect(checkPolicy(text, ['https'])).toEqual([]);
    },
  );
});

describe('a variable that does not exist', () => {
  const limit = { name: 'a', algorithm: 'sliding_window', capacity: 1, rate: '60s' };
  const rules = (...rest: object[]) => JSON.stringify({ on_http_request: rest });
  const denied = (expression: string) => ({ expressions: [expression], ...deny });
  const setsOne = { actions: [{ type: 'set-vars', config: { vars: [{ one: 1 }] } }] };

  it.each<[string, object[]]>([
    ['req.nonsense', [denied('req.nonsense == 1')]],
    ['req.nonsense', [denied('has(req.nonsense)')]],
    ['conn.tls.client', [denied('has(conn.tls.client)')]],
    ['req', [denied("req['method'] == 'GET'")]],
    ['req.user_agent.nme', [denied('[1].exists(x, x == 1 && req.user_agent.nme == "a")')]],
    ['actions.ngrok.terminate_tls.client.subjct', [denied("actions.ngrok.terminate_tls.client.subjct == 'CN=a'")]],
    ['actions.ngrok.basic_auth.authorized', [denied('!actions.ngrok.basic_auth.authorized')]],
    ['actions.ngrok.saml.identity.email', [denied("actions.ngrok.saml.identity.email != ''")]],
    ['actions.ngrok.saml', [denied('!has(actions.ngrok.saml)')]],
    ['vars.two', [setsOne, denied('vars.two == 1')]],
    ['vars.two', [setsOne, denied("vars['two'] == 1")]],
    ['vars.one', [denied('vars.one == 1'), setsOne]],
    ['req.nonsense', [{ actions: [{ type: 'custom-response', config: { body: ['$', '{req.nonsense}'].join('') } }] }]],
    ['req.nonsense', [{ actions: [{ type: 'rate-limit', config: { ...limit, bucket_key: ['req.nonsense'] } }] }]],
    ['vars.two', [setsOne, { actions: [{ type: 'rate-limit', config: { ...limit, bucket_key: ['vars.two'] } }] }]],
  ])('%s is refused with the policy: %j', (name, policy) => {
    const [finding, ...more] = checkPolicy(rules(...policy), ['https']);
    expect(more).toEqual([]);
    expect(finding).toMatchObject({ severity: 'error', code: expect.stringMatching(/^ERR_NGROK_22(?:00|24)$/) });
    expect(finding?.message).toMatch(new RegExp(`unknown variable ${name}(?![\\w.])`));
  });

  it.each(['actions["ngrok"]', 'actions.ngrok["terminate_tls"].version', 'actions.ngrok.terminate_tls["client"]'])(
    'cannot hide in an index: %s',
    (name) => {
      expect(checkPolicy(rules(denied(`${name} == 1`)), ['https'])).toMatchObject([
        { severity: 'error', message: expect.stringMatching(/^actions\S* cannot be indexed/) },
      ]);
    },
  );

  it.each([
    [denied('has(vars.two)')],
    [setsOne, denied('vars.one == 1 && has(vars.one)')],
    [denied('actions.ngrok.jwt_validation.tokens[0].payload.sub == "a"')],
    [denied('actions.ngrok.add_headers.headers_added.x == "a" && has(actions.ngrok.redirect)')],
    [denied('has(actions.ngrok.terminate_tls.client.subject) && has(req.url.port) && has(req.headers.host)')],
    [denied('json.encode(actions.ngrok) == "" || actions.ngrok.log.metadata.who.name == "a"')],
  ])('others are accepted: %j', (...policy) => {
    expect(checkPolicy(rules(...policy), ['https']).filter(({ severity }) => severity === 'error')).toEqual([]);
  });
});

describe('a running policy', () => {
  const answer = (body: string) => ({ actions: [{ type: 'custom-response', config: { body } }] });
  const bodyOf = (outcome: unknown) => (outcome as { body: Buffer }).body.toString();

  it('runs a rule only when all its expressions are true, not just truthy', async () => {
    const rules = [
      { expressions: ['true', 'false'], ...answer('one false') },
      { expressions: ["'text'"], ...answer('not a boolean') },
      { expressions: ['true', '1 < 2'], ...answer('right') },
      answer('the last'),
    ];
    const policy = compilePolicy(JSON.stringify({ on_http_request: rules }), 'https');
    expect(bodyOf(await policy.onHttpRequest?.(requestFor()))).toBe('right');
  });

  it.each([
    ['/%61dmin', '/admin'],
    ['/%61dmin/%zz', '/admin/%zz'],
    ['/%61dmin/%', '/admin/%'],
    ['/%61dmin/%ff', '/admin/\ufffd'],
    ['/caf%C3%A9/%2561', '/café/%61'],
  ])('decodes the path %s', async (target, path) => {
    const text = JSON.stringify({
      on_http_request: [{ actions: [{ type: 'custom-response', config: { body: `\${req.url.path}` } }] }],
    });
    const outcome = await compilePolicy(text, 'https').onHttpRequest?.(requestFor({ target }));
    expect(outcome?.kind === 'answer' && outcome.body.toString()).toBe(path);
  });

  it('skips a rule when its expression fails, and reports it once a minute', async () => {
    const troubles: PolicyTrouble[] = [];
    let ms = 0;
    const clock = { ...systemClock, now: () => ms };
    const text = JSON.stringify({ on_http_request: [{ expressions: ["req.headers['x'][0] == 'a'"], ...deny }] });
    const policy = compilePolicy(text, 'https', { ports: { clock, onTrouble: (trouble) => troubles.push(trouble) } });
    for (let second = 0; second < 90; second++, ms += 1000)
      expect(await policy.onHttpRequest?.(requestFor())).toBeUndefined();
    expect(troubles).toMatchObject([
      { place: 'on_http_request[0].expressions[0]', code: 'ERR_NGROK_2254', times: 1 },
      { times: 60 },
    ]);
  });

  it.each([
    ['int(V)', 'not a whole number'],
    ['bool(V)', 'to bool'],
    ['json.decode(V)', 'not JSON: …'],
    ['url.parse(V)', 'not a URL'],
    ["{'a': 1}[V]", 'field not found: …'],
    ["V.matches('(' + V)", 'error parsing regexp: …'],
    ["timestamp('2026-01-01T00:00:00Z').getHours(V)", 'time zone specified: …'],
    ['getReqCookie(V)', 'unknown cookie: …'],
    ['V.sha256(V)', 'the encoding must be'],
    ['{V: 1, V: 2}', 'map key conflict: …'],
    ["req.headers['x-absent']", 'field not found: x-absent'],
    ['V + 1', "applied to '(string, int)'"],
  ])('reports why %s has no value without quoting the request', async (pattern, reason) => {
    const troubles: PolicyTrouble[] = [];
    const expression = pattern.replaceAll('V', "req.headers['authorization'][0]");
    const rules = [
      { expressions: [`${expression} == 1`], actions: [{ type: 'deny' }] },
      { actions: [{ type: 'custom-response', config: { body: `\${${expression}}` } }] },
    ];
    const ports = { onTrouble: (trouble: PolicyTrouble) => troubles.push(trouble) };
    const policy = compilePolicy(JSON.stringify({ on_http_request: rules }), 'https', { ports });
    await policy.onHttpRequest?.(requestFor({ headers: ['Authorization', 'hunter2%zz'] }));
    expect(troubles).toHaveLength(2);
    for (const { message, cause } of troubles) {
      expect(message).toContain(reason);
      expect(message + inspect(cause)).not.toContain('hunter2');
    }
  });

  it('fails closed when it exceeds its computing time', async () => {
    const expression = 'lists.range(2000).all(x, lists.range(2000).all(y, x + y >= 0))';
    const text = JSON.stringify({ on_http_request: [{ expressions: [expression], ...deny }] });
    expect(await compilePolicy(text, 'https').onHttpRequest?.(requestFor())).toMatchObject({
      status: 500,
      code: 'ERR_NGROK_2300',
    });
  });

  it('passes results of the connection phase to its requests', async () => {
    const text = JSON.stringify({
      on_tcp_connect: [{ actions: [{ type: 'restrict-ips', config: { allow: ['203.0.113.0/24'] } }] }],
      on_http_request: [answer(['$', '{actions.ngrok.restrict_ips.matched_cidr}'].join(''))],
    });
    const policy = compilePolicy(text, 'https');
    const connection = connectionFrom();
    expect(policy.onTcpConnect?.({ connection, endpoint: ENDPOINT })).toBeUndefined();
    expect(bodyOf(await policy.onHttpRequest?.(requestFor({ connection })))).toBe('203.0.113.0/24');
  });

  it('changes responses depending on their content', () => {
    const text = JSON.stringify({
      on_http_response: [
        {
          expressions: ['res.status_code >= 500'],
          actions: [{ type: 'add-headers', config: { headers: { 'x-broken': 'yes' } } }],
        },
      ],
    });
    const policy = compilePolicy(text, 'https');
    const [good, bad] = [responseOf(200), responseOf(502)];
    for (const response of [good, bad]) policy.onHttpResponse?.(requestFor(), response);
    expect([good.headers, bad.headers]).toEqual([[], ['x-broken', 'yes']]);
  });
});

describe('the agent', () => {
  /** All files that a file imports, directly or indirectly, except for type imports. */
  function imports(file: string, seen = new Set<string>()): Set<string> {
    for (const [, what, from = ''] of readFileSync(file, 'utf8').matchAll(/^import (type )?[^;]*?from '([^']+)';/gms)) {
      if (what !== undefined) continue;
      const target = from.startsWith('.') ? new URL(from, `file://${file}`).pathname : from;
      if (seen.has(target)) continue;
      seen.add(target);
      if (from.startsWith('.')) imports(target, seen);
    }
    return seen;
  }

  it("does not load the engine's libraries, which only a gateway needs", () => {
    const root = new URL('../../src/agent/', import.meta.url).pathname;
    // Loaded on demand, when somebody writes a policy in the page.
    const isPolicyEditor = (name: string) => name === 'api/page/read-policy-text.ts';
    const all = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
    const files = all.filter((name) => !isPolicyEditor(name));
    expect(files).toHaveLength(all.length - 1);
    expect(files.length).toBeGreaterThan(5);
    const loaded = new Set(files.flatMap((name) => [...imports(root + name)]));
    const forbidden = [...loaded].filter((name) =>
      /^(?:@bufbuild|re2js|yaml|jose|@peculiar)|traffic-policy\/(?:engine|cel|scope)/.test(name),
    );
    expect(forbidden).toEqual([]);
    expect([...loaded].some((name) => name.endsWith('traffic-policy/document.ts'))).toBe(true);
  });

  it('would load them through an import of the engine', () => {
    const engine = new URL('../../src/traffic-policy/engine.ts', import.meta.url).pathname;
    expect([...imports(engine)]).toEqual(expect.arrayContaining(['@bufbuild/cel', 're2js', 'yaml', 'jose']));
  });
});

it('PolicyRefused has its own name', () => {
  expect(() => compilePolicy('[]', 'https')).toThrow(PolicyRefused);
});
