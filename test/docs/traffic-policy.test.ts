import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ACTION_TYPES } from '../../src/traffic-policy/action-types.ts';
import { type Endpoint, PolicyScene } from '../gateway/edge/proxy/policy-scene.ts';

const page = readFileSync('docs/traffic-policy.md', 'utf8');
const examples = new Map(
  [...page.matchAll(/```(?:yaml|json) (\S+)\n([\s\S]*?)```/g)].map(([, name = '', text = '']) => [name, text]),
);

let scene: PolicyScene;

beforeAll(async () => {
  scene = await PolicyScene.start();
});
afterAll(() => scene.close());

/** What each example of the page does. */
const PROMISES: Record<string, (endpoint: Endpoint) => Promise<void>> = {
  'keep-out': async (endpoint) => {
    expect([await endpoint.status({ path: '/admin' }), await endpoint.status()]).toEqual([404, 200]);
  },
  password: async (endpoint) => {
    expect((await endpoint.ask()).headers['www-authenticate']).toBe('Basic realm="camera"');
    const authorization = `Basic ${Buffer.from('jo:correct horse').toString('base64')}`;
    const answer = await endpoint.ask({ headers: { authorization } });
    expect(answer.headers['strict-transport-security']).toBe('max-age=31536000');
    expect(JSON.parse(answer.body).headers['x-client']).toBe('127.0.0.1');
  },
  'no-ai-bots': async (endpoint) => {
    const agent = 'AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)';
    expect(await endpoint.status({ headers: { 'user-agent': `Mozilla/5.0 ${agent}` } })).toBe(404);
    expect(await endpoint.status()).toBe(200);
  },
  'spare-the-device': async (endpoint) => {
    for (let request = 0; request < 3; request++) expect(await endpoint.status()).toBe(200);
    expect(await endpoint.status()).toBe(429);
  },
  moved: async (endpoint) => {
    expect((await endpoint.ask({ path: '/old/a' })).headers.location).toBe(`http://${endpoint.host}/new/a`);
    expect((await endpoint.reached({ path: '/new/a' })).url).toBe('/v2/a');
  },
  'keep-secrets': async (endpoint) => {
    expect((await endpoint.ask({ headers: { api_key: 'k-1' } })).body).toContain('"api_key": "hidden"');
  },
  'ask-first': async (endpoint) => {
    expect(await endpoint.status()).toBe(502);
    const deny = { type: 'deny', config: { status_code: 404 } };
    const rules = [{ expressions: ["req.headers['x-path'][0] == '/closed'"], actions: [deny] }];
    await scene.bind({ on_http_request: rules }, { domain: 'judge.internal', scheme: 'HTTPS' });
    expect([await endpoint.status({ path: '/open' }), await endpoint.status({ path: '/closed' })]).toEqual([200, 403]);
  },
};

describe('docs/traffic-policy.md', () => {
  it.each(Object.keys(PROMISES))('promises what happens: %s', async (name) => {
    await PROMISES[name]?.(await scene.bind(examples.get(name) ?? ''));
  });

  it('has no example besides', () => {
    expect([...examples.keys()]).toEqual(Object.keys(PROMISES));
  });

  it('says of every action whether it runs, and it is so', async () => {
    const [, later = ''] = /Not yet, and refused by name: ([\s\S]*?)\.\n/.exec(page) ?? [];
    for (const type of ACTION_TYPES) {
      expect(page).toContain(`\`${type}\``);
      const error = await scene.bind({ on_http_request: [{ actions: [{ type, config: { x: 1 } }] }] }).catch(String);
      if (later.includes(`\`${type}\``)) expect(error).toContain(`does not support the action ${type} yet`);
      else expect(error).not.toContain('does not support');
    }
  });
});
