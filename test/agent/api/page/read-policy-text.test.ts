import request from 'supertest';
import { describe, expect, it } from 'vitest';
import { type PolicyTextRequest, readPolicyText } from '../../../../src/agent/api/page/read-policy-text.ts';
import { setUpApi } from '../../../support/api-set-up.ts';

const DENYING = { on_http_request: [{ actions: [{ type: 'deny' }] }] };

function read(text: string, more: Partial<PolicyTextRequest> = {}) {
  return readPolicyText({ text, protocol: 'http', ...more });
}

describe('a policy that somebody types', () => {
  it.each([
    ['YAML', 'on_http_request:\n  - actions:\n      - type: deny\n'],
    ['JSON', '{"on_http_request": [{"actions": [{"type": "deny"}]}]}'],
    ['YAML with braces', 'on_http_request: [{actions: [{type: deny}]}]'],
  ])('is read from %s', (_, text) => {
    expect(read(text)).toEqual({ policy: DENYING, text: null, problems: [], password: null, people: null });
  });

  it.each([
    ['a syntax error in YAML', 'on_http_request:\n  - actions: [\n', 3],
    ['a syntax error in JSON', '{\n  "on_http_request": [,]\n}', 2],
    ['an unknown action', 'on_http_request:\n  - actions:\n      - type: denyy\n', 3],
    ['an unknown member', 'on_http_request:\n  - actions:\n      - type: deny\n    foo: 1\n', 4],
    ['a missing member', 'on_http_request:\n  - name: first\n', 2],
    ['a name that occurs twice', 'on_http_request: []\non_http_request: []\n', 2],
    ['an unknown phase', 'on_http_request: []\non_sunday: []\n', 2],
    ['text that is no map', '- a\n', 1],
  ])('with %s has the problem in its line', (_, text, line) => {
    const { policy, problems } = read(text);
    expect(policy).toBeNull();
    expect(problems[0]?.line).toBe(line);
  });

  it('has a problem where a rule does not suit the protocol', () => {
    const { problems } = read('on_tcp_connect: []\non_http_request:\n  - actions: [{type: deny}]\n', {
      protocol: 'tcp',
    });
    expect(problems).toEqual([expect.objectContaining({ line: 2 })]);
  });

  it('has the problems that the gateway found, at their places', () => {
    const text = 'on_http_request:\n  - expressions:\n      - req.nothing == 1\n    actions: [{type: deny}]\n';
    const details = { 'policy.on_http_request[0].expressions[0]': 'unknown variable req.nothing' };
    expect(read(text, { details }).problems).toEqual([{ line: 3, column: 9, message: 'unknown variable req.nothing' }]);
  });

  it('is written with another choice of who may come in, with a password of its own', () => {
    const answer = read(JSON.stringify(DENYING), { format: 'yaml', access: { choice: 'password', links: true } });
    expect(answer.password).toMatch(/^[\w-]{22}$/);
    expect(answer.text).toContain(`guest:${answer.password}`);
    expect(answer.policy?.on_http_request?.at(-1)).toEqual(DENYING.on_http_request[0]);
    const again = read(answer.text ?? '', { format: 'yaml', access: { choice: null, links: false } });
    expect(again.text).toContain(`guest:${answer.password}`);
    expect(again.text).not.toContain('share');
  });

  it('is written in the other format', () => {
    const json = '{"on_http_request":[{"actions":[{"type":"deny"}]}]}';
    const yaml = read(json, { format: 'yaml' }).text ?? '';
    expect(yaml).toBe('on_http_request:\n  - actions:\n      - type: deny\n');
    expect(JSON.parse(read(yaml, { format: 'json' }).text ?? '')).toEqual(DENYING);
  });

  it.each([
    ['nested too deeply', '['.repeat(50_000)],
    [
      'aliases that multiply',
      `a: &a [1,1,1,1,1,1,1,1,1]\n${[...'bcdefghi'].map((name, at) => `${name}: &${name} [${`*${'abcdefgh'[at]},`.repeat(9)}]`).join('\n')}\n`,
    ],
  ])('with %s is refused', (_, text) => {
    expect(read(text).problems).toHaveLength(1);
  });
});

it('POST /page/policy reads a policy, and rejects what is no request', async () => {
  const { local } = await setUpApi();
  const good = await request(local).post('/page/policy').send({ text: '{}', protocol: 'http' });
  expect([good.status, good.body]).toEqual([
    200,
    { policy: {}, text: null, problems: [], password: null, people: null },
  ]);
  expect((await request(local).post('/page/policy').send({ text: '{}' })).status).toBe(400);
});
