import { once, setMaxListeners } from 'node:events';
import { createServer } from 'node:http';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { bodyMemory } from '../../../../src/gateway/edge/proxy/request-body.ts';
import { cidrList } from '../../../../src/lib/network/ip-address.ts';
import { type OutboundRequest, publicRequest } from '../../../../src/traffic-policy/public-request.ts';
import { freePort, serving } from '../../../support/loopback.ts';
import { until } from '../../../support/until.ts';
import { askPolicy } from '../../../traffic-policy/actions/ask-policy.ts';
import type { Endpoint } from './policy-scene.ts';
import { PolicyScene, rule } from './policy-scene.ts';

let scene: PolicyScene;
beforeAll(async () => {
  scene = await PolicyScene.start();
});
afterAll(() => scene.close());

const RESULT = 'actions.ngrok.http_request';
/** Answers with the values of expressions, as a list. */
const shows = (...expressions: string[]) =>
  rule('custom-response', { body: `\${json.encode([${expressions.join(', ')}])}` });

/** An internal endpoint of the scene's upstream. */
const internal = (name: string, policy: object = {}) => scene.bind(policy, { domain: `${name}.internal` });

/** An endpoint whose policy makes a request, and answers with what expressions read of it. */
async function asking(config: object, ...expressions: string[]): Promise<Endpoint> {
  return scene.bind({ on_http_request: [rule('http-request', config), shows(...expressions)] });
}

async function shown(endpoint: Endpoint, ask: Parameters<Endpoint['ask']>[0] = {}) {
  const { status, body } = await endpoint.ask(ask);
  return status === 200 ? JSON.parse(body) : [status, JSON.parse(body).error_code];
}

it('asks an internal endpoint, with what the client has sent', async () => {
  const hidden = rule('add-headers', { headers: { 'x-inner': `\${conn.client_ip}` } });
  await internal('echo', { on_http_request: [hidden] });
  const config = {
    url: `http://echo.internal/who\${req.url.path}?a=1`,
    method: 'POST',
    query_params: [{ key: 'user', value: `\${req.headers['x-user'][0]}` }],
    headers: { 'content-type': 'text/plain', 'x-key': `\${req.method}` },
    body: `{"host": "\${req.host}", "user": "\${req.headers[\\"x-user\\"][0]}"}`,
  };
  const endpoint = await asking(
    config,
    `${RESULT}.res.status_code`,
    `json.decode(${RESULT}.res.body)`,
    `${RESULT}.req.url`,
  );
  const [status, seen, url] = await shown(endpoint, { path: '/x', headers: { 'x-user': 'jo é&' } });
  expect(status).toBe(200);
  expect(seen).toMatchObject({
    method: 'POST',
    url: '/who/x?a=1&user=jo+%C3%A9%26',
    body: `{"host": "${endpoint.host}", "user": "jo é&"}`,
  });
  expect(seen.headers).toMatchObject({
    ...{ host: 'echo.internal', 'x-key': 'GET', 'x-inner': '127.0.0.1', 'x-forwarded-for': '127.0.0.1' },
    ...{ 'content-type': 'text/plain', 'ngrok-req-type': 'http-request', 'user-agent': 'device-agent-gateway' },
  });
  expect(url).toBe(`http://echo.internal${seen.url}`);
});

it('lets rules of both phases decide by the response', async () => {
  await internal('judge');
  const ask = rule('http-request', { url: `http://judge.internal/status/\${req.url.query_params['s'][0]}` });
  const status = `${RESULT}.res.status_code`;
  const before = await scene.bind({ on_http_request: [ask, rule('deny', { status_code: 401 }, `${status} != 204`)] });
  const after = await scene.bind({
    on_http_response: [ask, rule('add-headers', { headers: { 'x-judged': `\${${status}}` } })],
  });
  expect([await before.status({ path: '/?s=204' }), await before.status({ path: '/?s=403' })]).toEqual([200, 401]);
  const { headers, body } = await after.ask({ path: '/?s=418' });
  expect([headers['x-judged'], JSON.parse(body).url]).toEqual(['418', '/?s=418']);
});

it('follows as many redirects as it may, and repeats what failed as the condition says', async () => {
  await internal('moved');
  const url = 'http://moved.internal/redirect';
  const location = `${RESULT}.res.header['location'][0]`;
  expect(await shown(await asking({ url }, `${RESULT}.res.status_code`, location))).toEqual([
    302,
    'http://moved.internal/there?x',
  ]);
  const followed = await asking({ url, max_redirects: 1 }, `json.decode(${RESULT}.res.body).url`);
  expect(await shown(followed)).toEqual(['/there?x']);
  const retry = { url: 'http://moved.internal/status/500', timeout: '5s' };
  for (const [condition, attempts] of [
    ['last_attempt.res.status_code >= 500', 4],
    ['attempts < 2 && last_attempt.res.statusCode == 500', 2],
    ["last_attempt.error != ''", 1],
  ] as const) {
    const endpoint = await asking(
      { ...retry, retry_condition: condition },
      `size(${RESULT}.attempts)`,
      `${RESULT}.error.code`,
    );
    expect(await shown(endpoint)).toEqual([attempts, '']);
  }
});

it('takes no credentials along when it follows a redirect to another server', async () => {
  await internal('leads', { on_http_request: [rule('redirect', { to: 'http://elsewhere.internal/' })] });
  await internal('elsewhere');
  const secrets = { authorization: 'Bearer x', cookie: 'a=b', 'x-api-key': 'k', 'private-token': 't' };
  const config = { url: 'http://leads.internal/', max_redirects: 1, headers: { ...secrets, 'x-other': 'o' } };
  const [headers] = await shown(await asking(config, `json.decode(${RESULT}.res.body).headers`));
  expect(headers).toMatchObject({ host: 'elsewhere.internal', 'x-other': 'o' });
  for (const name of Object.keys(secrets)) expect(headers).not.toHaveProperty(name);
});

it.each([
  ['an endpoint that is offline', { url: 'http://nobody.internal/' }, 'ERR_NGROK_3200'],
  ['more redirects than allowed', { url: 'http://loops.internal/again', max_redirects: 5 }, 'ERR_NGROK_3214'],
  ['a response that is too long', { url: 'http://loops.internal/long' }, 'ERR_NGROK_3601'],
  ['a response that never ends', { url: 'http://loops.internal/events', timeout: '1s' }, 'ERR_NGROK_3602'],
  ['the network of the gateway', { url: 'http://127.0.0.1:$PORT/' }, 'ERR_NGROK_2300'],
  ['a name for it', { url: 'http://localhost:$PORT/' }, 'ERR_NGROK_2300'],
  ['a URL of the client that is none', { url: `\${req.headers['x-url'][0]}` }, 'ERR_NGROK_2226'],
])('fails for %s', async (_, { url, ...config }, code) => {
  const { listener } = await internal('loops');
  onTestFinished(() => listener.close());
  let reached = 0;
  const server = createServer((_req, res) => {
    reached++;
    res.end();
  });
  const port = await serving(server);
  const target = url.replace('$PORT', String(port));
  const headers = { 'x-url': 'ftp://a' };
  const goesOn = await asking({ ...config, url: target }, `${RESULT}.error.code`);
  expect(await shown(goesOn, { headers })).toEqual([code]);
  const halts = await asking({ ...config, url: target, on_error: 'halt' }, '1');
  expect(await shown(halts, { headers })).toEqual([code === 'ERR_NGROK_3602' ? 504 : 502, code]);
  expect(reached).toBe(0);
});

it('tells policies that read its error nothing of the names and addresses in the networks of the gateway, but the log', async () => {
  const logged: string[] = [];
  const ports = {
    request: (outbound: OutboundRequest, signal: AbortSignal) =>
      publicRequest(outbound, signal, cidrList(['127.0.0.2/32'])),
    onTrouble: ({ message }: { message: string }) => void logged.push(message),
  };
  const failureOf = async (url: string) => {
    const condition = 'attempts < 2 && !last_attempt.error.matches("^the server is unreachable: ")';
    const policy = {
      on_http_request: [
        rule('http-request', { url, retry_condition: condition }),
        shows(`size(${RESULT}.attempts)`, `${RESULT}.attempts[0].resolved_ip`, `${RESULT}.error`),
      ],
    };
    const { body } = await askPolicy(JSON.stringify(policy), ports, 'https://cam.example.com/');
    return JSON.parse(body.toString());
  };
  const urls = {
    refused: `http://127.0.0.2:${await freePort()}/`,
    private: 'http://10.1.2.3/',
    'a private name': 'http://localhost/',
    'no name': 'http://nobody.invalid/',
  };
  const failures = await Promise.all(Object.values(urls).map(failureOf));
  for (const failure of failures) expect(failure).toEqual(failures[0]);
  expect(failures[0]).toMatchObject([1, '', { code: 'ERR_NGROK_2300' }]);
  expect(logged.toSorted()).toEqual(
    [
      /10\.1\.2\.3 is not on the public internet/,
      /ECONNREFUSED 127\.0\.0\.2/,
      /ENOTFOUND|EAI_AGAIN/,
      /localhost is not/,
    ].map((pattern) => expect.stringMatching(pattern)),
  );
});

it('ends endpoints that ask each other in circles, whatever the policy says', async () => {
  await internal('circle', { on_http_request: [rule('http-request', { url: 'http://circle.internal/' })] });
  const endpoint = await asking({ url: 'http://circle.internal/' }, `${RESULT}.res.status_code`);
  expect(await shown(endpoint)).toEqual([502, 'ERR_NGROK_2300']);
  const many = Array.from({ length: 11 }, () => ({ type: 'http-request', config: { url: 'http://nobody.internal/' } }));
  expect(await (await scene.bind({ on_http_request: [{ actions: many }] })).status()).toBe(502);
});

it('does not close the connection of the client when the internal endpoint closes its own', async () => {
  await internal('closes', { on_http_request: [rule('close-connection')] });
  const endpoint = await asking({ url: 'http://closes.internal/' }, `${RESULT}.error.code`);
  expect(await shown(endpoint)).toEqual(['ERR_NGROK_2300']);
});

it('gives the memory of its response back before the connection becomes a WebSocket', async () => {
  const memory = bodyMemory('127.0.0.1');
  await internal('small');
  const policy = { on_http_request: [rule('http-request', { url: 'http://small.internal/' })] };
  const { host, port } = await scene.bind(policy);
  const socket = new WebSocket(`ws://127.0.0.1:${port}`, { headers: { host } });
  await once(socket, 'open');
  expect(memory.reserved).toBe(0);
  socket.terminate();
});

it('fails whatever the policy says when there is no room for the response, which counts until it is read', async () => {
  await internal('answers');
  const endpoint = await asking({ url: 'http://answers.internal/' }, `${RESULT}.res.status_code`);
  const memory = bodyMemory('127.0.0.1');
  const taken = 32 * 1_048_576 - 1;
  memory.reserve(taken);
  expect(await shown(endpoint)).toEqual([502, 'ERR_NGROK_2300']);
  memory.release(taken);
  expect(await shown(endpoint)).toEqual([200]);
  await until(() => memory.reserved === 0, 'the release of what was counted');
});

it('one client network cannot keep others out, and a client that leaves gives its place back', async () => {
  await internal('slow');
  const endpoint = await asking({ url: `http://slow.internal\${req.url.path}`, timeout: '30s' }, '1');
  const leaving = new AbortController();
  setMaxListeners(0, leaving.signal);
  const statuses: number[] = [];
  const before = scene.arrived;
  const strangers = Array.from({ length: 48 }, () =>
    endpoint.status({ path: '/events', signal: leaving.signal }).then(
      (status) => statuses.push(status),
      () => {},
    ),
  );
  await until(() => scene.arrived - before === 32 && statuses.length === 16, 'requests in all places');
  expect(await shown(endpoint, { localAddress: '127.0.0.2' })).toEqual([1]);
  // The stranger has lost one of its places.
  await until(() => statuses.length === 17, 'the end of a request');
  expect(new Set(statuses)).toEqual(new Set([502]));
  leaving.abort();
  await Promise.all(strangers);
  await until(async () => (await endpoint.status()) === 200, 'a place for the network of those who left');
  const again = Array.from({ length: 32 }, () => endpoint.status());
  expect(new Set(await Promise.all(again))).toEqual(new Set([200]));
});

it('ends the request when the client leaves', async () => {
  await internal('endless');
  const endpoint = await asking({ url: 'http://endless.internal/events', timeout: '30s' }, '1');
  const leaving = new AbortController();
  const before = { arrived: scene.arrived, left: scene.left };
  const asked = endpoint.status({ signal: leaving.signal });
  await until(() => scene.arrived > before.arrived, 'the request of the policy');
  leaving.abort();
  await expect(asked).rejects.toThrow('abort');
  await until(() => scene.left > before.left, 'its end');
  expect(scene.lines.filter(({ url, level }) => url === `http://${endpoint.host}` && Number(level) > 30)).toEqual([]);
});
