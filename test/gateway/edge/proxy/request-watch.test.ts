import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { headDigest, headSample, RequestReport } from '../../../../src/agent-protocol/request-report.ts';
import { RequestFeed } from '../../../../src/gateway/endpoints/request-feed.ts';
import { TestEdge } from '../../../support/edge.ts';
import { until } from '../../../support/until.ts';

let edge: TestEdge;
beforeAll(async () => {
  edge = await TestEdge.start();
});
afterAll(() => edge.close());

/** Heads of requests as the upstream got them. */
const heads: string[] = [];
const held: ServerResponse[] = [];

/** An endpoint that is watched, and the reports of its requests. */
async function watched(host: string, policy: object) {
  const server = createServer((req, res) => {
    if (req.url === '/held') held.push(res);
    else if (req.url === '/odd') res.socket?.end('HTTP/1.1 OK\r\n\r\n');
    else res.writeHead(req.url?.startsWith('/404') ? 404 : 200).end('from upstream');
  });
  server.on('connection', (socket) => socket.prependListener('data', (data) => heads.push(data.toString('latin1'))));
  server.on('upgrade', (_, socket) =>
    socket.end('HTTP/1.1 101 Yes\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n'),
  );
  const endpoint = await edge.serve(host, server, { policy });
  const feed = new RequestFeed();
  endpoint.feed = feed;
  const reports: RequestReport[] = [];
  const take = (lines: string) => {
    for (const line of lines.trimEnd().split('\n')) reports.push(RequestReport.parse(JSON.parse(line)));
    return true;
  };
  feed.watch({ take, hold: () => {}, end: () => {} });
  const next = async () => {
    await until(() => reports.length > 0, 'a request is reported');
    return reports.shift() as RequestReport;
  };
  const send = (line: string, more = '') =>
    edge.raw(`${line} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n${more}\r\n`);
  return { endpoint, next, send };
}

const rule = (type: string, config: object, ...expressions: string[]) => ({ expressions, actions: [{ type, config }] });
const deny = (...expressions: string[]) => rule('deny', { status_code: 403 }, ...expressions);

it('a request that passes is reported with the rules that acted, and with what the upstream got', async () => {
  const { next, send } = await watched('passes.test', {
    on_tcp_connect: [rule('set-vars', { vars: [{ a: 'b' }] })],
    on_http_request: [deny("req.url.path == '/no'"), rule('url-rewrite', { from: '/old', to: '/404' })],
    on_http_response: [rule('add-headers', { headers: { 'x-a': 'b' } }, 'res.status_code == 404')],
  });
  await send('GET /old?token=1');
  const report = await next();
  expect(report).toMatchObject({
    method: 'GET',
    host: 'passes.test',
    target: '/old?token=1',
    client: expect.stringMatching(/^127\.0\.0\.1:\d+$/),
    status: 404,
    code: null,
    by: 'upstream',
    sent: { target: '/404?token=1' },
    rules: [
      { place: 'on_tcp_connect[0]', actions: ['set-vars'] },
      { place: 'on_http_request[1]', actions: ['url-rewrite'], outcome: { kind: 'continue' } },
      { place: 'on_http_response[0]', actions: ['add-headers'], outcome: { kind: 'continue' } },
    ],
  });
  const [head = ''] = heads
    .filter((text) => text.startsWith('GET /404?token=1 '))
    .map((text) => text.split('\r\n\r\n')[0]);
  expect(report.sent).toMatchObject({ head: headDigest(head), sample: headSample(head) });
});

it('requests that rules answer or close are reported with these rules', async () => {
  const { next, send } = await watched('answers.test', {
    on_http_request: [
      deny("req.url.path == '/deny'"),
      rule('close-connection', {}, "req.url.path == '/close'"),
      rule('basic-auth', { credentials: ['user:password1'] }, "req.url.path == '/auth'"),
    ],
    on_http_response: [rule('custom-response', { status_code: 503, body: 'later' }, "req.url.path == '/404'")],
  });
  const facts = async (path: string) => {
    await send(`GET ${path}`);
    const { status, code, by, sent, rules } = await next();
    return [status, code, by, sent === null, rules.map(({ place, outcome }) => `${place} ${outcome.kind}`)];
  };
  expect(await facts('/deny')).toEqual([403, null, 'gateway', true, ['on_http_request[0] answer']]);
  expect(await facts('/close')).toEqual([null, null, 'gateway', true, ['on_http_request[1] close']]);
  expect(await facts('/auth')).toEqual([401, 'ERR_NGROK_3401', 'gateway', true, ['on_http_request[2] error']]);
  expect(await facts('/404')).toEqual([503, null, 'gateway', false, ['on_http_response[0] answer']]);
  expect(await facts('/')).toEqual([200, null, 'upstream', false, []]);
});

it('a connection that on_tcp_connect closes is reported with its first request', async () => {
  const { next, send } = await watched('closed.test', { on_tcp_connect: [rule('restrict-ips', { allow: [] })] });
  await send('GET /first');
  expect(await next()).toMatchObject({
    target: '/first',
    status: null,
    by: 'gateway',
    sent: null,
    rules: [{ place: 'on_tcp_connect[0]', actions: ['restrict-ips'], outcome: { kind: 'close' } }],
  });
});

it('an upgraded connection, a client that leaves and an upstream that is away are reported', async () => {
  const { endpoint, next, send } = await watched('others.test', {});
  await edge.raw('GET /ws HTTP/1.1\r\nHost: others.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n');
  expect(await next()).toMatchObject({ status: 101, by: 'upstream', sent: { target: '/ws' } });
  const client = edge.connect();
  client.write('GET /held HTTP/1.1\r\nHost: others.test\r\n\r\n');
  await until(() => held.length > 0, 'the upstream has the request');
  client.destroy();
  await once(client, 'close');
  expect(await next()).toMatchObject({ status: null, by: 'nobody', sent: { target: '/held' } });
  endpoint.open = () => {
    throw new Error('offline');
  };
  await send('GET /away');
  expect(await next()).toMatchObject({ status: 502, code: 'ERR_NGROK_3007', by: 'gateway' });
});

it('a target that is too long is cut', async () => {
  const { next, send } = await watched('long.test', {});
  await send(`GET /${'a'.repeat(10_000)}`);
  expect((await next()).target).toHaveLength(4_096);
});

it('a response that was refused is reported with what was wrong', async () => {
  const { next, send } = await watched('odd.test', {});
  await send('GET /odd');
  const refused = { by: 'gateway', status: 502, code: 'ERR_NGROK_3004', problem: expect.stringMatching(/status line/) };
  expect(await next()).toMatchObject(refused);
  await send('GET /404');
  expect(await next()).not.toHaveProperty('problem');
});
