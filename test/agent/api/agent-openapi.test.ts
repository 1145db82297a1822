import { Ajv2020 } from 'ajv/dist/2020.js';
import request, { type Test } from 'supertest';
import { describe, expect, it } from 'vitest';
import { setUpApi, TOKEN } from '../../support/api-set-up.ts';
import { describedMembers, OpenApiCheck, unusualTypes } from '../../support/openapi-check.ts';

interface Described {
  parameters: { name: string; in: string }[];
  requestBody?: { content: { 'application/json': { schema: object } } };
}

const FILTERS = ['method', 'path', 'status', 'min_duration_ms', 'reveal'].map((name) => `query ${name}`);
const policy = { outbound: [{ actions: [{ type: 'add-headers', config: { headers: { a: 'b' } } }] }] };
const device342 = { protocol: 'http', forwards_to: '8001', domain: 'device342.localhost', policy };

async function setUp() {
  const { local, remote, connector } = await setUpApi();
  const { body: document } = await request(local).get('/openapi.json');
  const check = new OpenApiCheck(document);
  const problems = async (call: Test, path: string) => {
    const { status, text } = await call;
    return [status, check.problems(call.method, path, status, text)];
  };
  return { local, remote, connector, document, problems };
}

describe('GET /openapi.json', () => {
  it('describes every path with its parameters and the body of POST /tunnels', async () => {
    const { document } = await setUp();
    expect(document).toMatchObject({ openapi: '3.1.0', info: { version: '1.2.3' } });
    const operations = Object.entries(document.paths as Record<string, Record<string, Described>>).flatMap(
      ([path, methods]) =>
        Object.entries(methods).map(([method, { parameters }]) => [
          `${method} ${path}`,
          ...parameters.map((parameter) => `${parameter.in} ${parameter.name}`),
        ]),
    );
    expect(operations).toEqual([
      ['get /tunnels', 'query protocol'],
      ['post /tunnels'],
      ['get /tunnels/{url_part}', 'path url_part'],
      ['patch /tunnels/{url_part}', 'path url_part'],
      ['delete /tunnels/{url_part}', 'path url_part'],
      ['get /tunnels/{url_part}/history', 'path url_part'],
      ['get /share_links'],
      ['post /tunnels/{url_part}/share_links', 'path url_part'],
      ['delete /share_links/{id}', 'path id'],
      ['get /tunnels/{url_part}/inspection', 'path url_part'],
      ['put /tunnels/{url_part}/inspection', 'path url_part'],
      ['delete /tunnels/{url_part}/inspection', 'path url_part'],
      ['get /tunnels/{url_part}/requests', 'path url_part', ...FILTERS, 'query limit', 'query before'],
      ['delete /tunnels/{url_part}/requests', 'path url_part'],
      ['get /tunnels/{url_part}/requests/events', 'path url_part', 'query reveal'],
      ['get /tunnels/{url_part}/requests.har', 'path url_part', ...FILTERS],
      ['get /tunnels/{url_part}/requests/{id}', 'path url_part', 'path id', 'query reveal'],
      ['get /tunnels/{url_part}/requests/{id}/messages', 'path url_part', 'path id', 'query after', 'query reveal'],
      ['get /tunnels/{url_part}/requests/{id}/request/body', 'path url_part', 'path id', 'query reveal'],
      ['get /tunnels/{url_part}/requests/{id}/response/body', 'path url_part', 'path id', 'query reveal'],
      ['post /tunnels/{url_part}/requests/{id}/replay', 'path url_part', 'path id', 'query reveal'],
      ['get /healthz'],
      ['get /readyz'],
      ['get /status'],
      ['get /history'],
      ['get /metrics'],
      ['get /openapi.json'],
    ]);
    const { schema } = document.paths['/tunnels'].post.requestBody.content['application/json'];
    const isValid = new Ajv2020({ strict: false }).compile(schema);
    expect(isValid(device342)).toBe(true);
    expect(unusualTypes(document)).toEqual([]);
    expect(isValid({ protocol: 'tcp', forwards_to: 22 })).toBe(true);
    expect(isValid({ ...device342, typo: 1 })).toBe(false);
    expect(isValid({ ...device342, policy: { inbound: [{ actions: [{ type: 'add-headers' }] }] } })).toBe(false);
  });

  it('describes at least nine of ten members', async () => {
    const { document } = await setUp();
    const { all, described } = describedMembers(document);
    expect(all).toBeGreaterThan(600);
    expect(described / all).toBeGreaterThanOrEqual(0.9);
  });

  it('has examples of tunnels that start, and links from them to the other operations', async () => {
    const { local, document } = await setUp();
    const { requestBody, responses } = document.paths['/tunnels'].post;
    const { examples } = requestBody.content['application/json'] as { examples: Record<string, { value: object }> };
    expect(Object.keys(examples)).toEqual(['http', 'tls', 'internal', 'policy']);
    for (const { value } of Object.values(examples)) {
      const { status, body } = await request(local).post('/tunnels').send(value);
      expect([status, body.forwards_to]).toEqual([200, expect.stringMatching(/:\d+$/)]);
    }
    expect(Object.keys(responses['200'].links)).toEqual(['getTunnel', 'deleteTunnel']);
  });

  it('describes the answers that the API gives', async () => {
    const { local, remote, connector, problems } = await setUp();
    const post = (body: object) => request(local).post('/tunnels').send(body);
    expect(await problems(post(device342), '/tunnels')).toEqual([200, []]);
    expect(await problems(post({ protocol: 'tcp', forwards_to: 22 }), '/tunnels')).toEqual([200, []]);
    expect(await problems(post(device342), '/tunnels')).toEqual([409, []]);
    expect(await problems(post({}), '/tunnels')).toEqual([400, []]);
    expect(await problems(request(local).post('/tunnels').type('text').send('x'), '/tunnels')).toEqual([415, []]);
    for (const path of ['/tunnels', '/tunnels/device342', '/healthz', '/readyz', '/status', '/metrics']) {
      expect([path, ...(await problems(request(local).get(path), path))]).toEqual([path, 200, []]);
    }
    expect(await problems(request(local).get('/openapi.json'), '/openapi.json')).toEqual([200, []]);
    connector.goOffline();
    for (const path of ['/tunnels/device342', '/status']) {
      expect([path, ...(await problems(request(local).get(path), path))]).toEqual([path, 200, []]);
    }
    expect(await problems(request(local).get('/readyz'), '/readyz')).toEqual([503, []]);
    expect(await problems(post({ ...device342, domain: 'b.localhost' }), '/tunnels')).toEqual([503, []]);
    expect(await problems(request(local).delete('/tunnels/device342'), '/tunnels/a')).toEqual([204, []]);
    expect(await problems(request(local).get('/tunnels/device342'), '/tunnels/a')).toEqual([404, []]);
    expect(await problems(request(remote).get('/status'), '/status')).toEqual([401, []]);
    expect(await problems(request(local).get('/status').set('Origin', 'https://a.example'), '/status')).toEqual([
      403,
      [],
    ]);
  });

  it('has the guards of every other path', async () => {
    const { local, remote } = await setUp();
    expect((await request(remote).get('/openapi.json')).status).toBe(401);
    const allowed = await request(remote).get('/openapi.json').auth(TOKEN, { type: 'bearer' });
    expect(allowed.body.openapi).toBe('3.1.0');
    expect((await request(local).get('/openapi.json').set('Host', 'evil.example')).status).toBe(403);
    const put = await request(local).put('/openapi.json');
    expect([put.status, put.headers.allow]).toEqual([405, 'GET, HEAD']);
  });
});
