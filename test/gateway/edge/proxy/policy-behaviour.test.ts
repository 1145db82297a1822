import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { collect } from '../../../support/edge.ts';
import { ask } from '../../../support/http-request.ts';
import { PolicyScene, rule } from './policy-scene.ts';

/** Resolves what a policy is waiting for. */
let release: (keySet: Buffer) => void = () => {};
let waiting: () => void = () => {};
let scene: PolicyScene;

beforeAll(async () => {
  const fetchForPolicies = () =>
    new Promise<Buffer>((resolve) => {
      release = resolve;
      waiting();
    });
  scene = await PolicyScene.start({ fetchForPolicies });
});
afterAll(() => scene.close());

describe('a policy', () => {
  it.each<[string, object | string, string[]]>([
    [
      'a bad expression',
      { on_http_request: [rule('deny'), rule('deny', undefined, 'req.method ==')] },
      ['ERR_NGROK_9026', 'on_http_request[1].expressions[0]'],
    ],
    ['text that is no policy', '[1]', ['ERR_NGROK_9026']],
  ])('is rejected at binding, with the position: %s', async (_what, policy, texts) => {
    const error: Error = await scene.bind(policy).then(
      () => new Error('it was bound'),
      (refused: Error) => refused,
    );
    for (const text of texts) expect(`${error.message} ${String(Reflect.get(error, 'errorCode'))}`).toContain(text);
  });
});

describe('a failure at run time', () => {
  it('skips a rule whose condition fails, and logs it', async () => {
    const endpoint = await scene.bind({ on_http_request: [rule('deny', undefined, "req.headers['x-a'][0] == 'b'")] });
    expect([await endpoint.status(), await endpoint.status()]).toEqual([200, 200]);
    expect(await endpoint.status({ headers: { 'x-a': 'b' } })).toBe(403);
    const lines = scene.lines.filter(({ url }) => String(url).includes(endpoint.host));
    expect(lines).toMatchObject([
      { msg: 'traffic policy is probably wrong', warnings: 1 },
      { msg: 'traffic policy failed', code: 'ERR_NGROK_2254' },
    ]);
  });

  it('in a template fails the request with a code, without revealing the policy', async () => {
    const endpoint = await scene.bind({
      on_http_request: [rule('add-headers', { headers: { 'x-a': `\${req.headers['x-secret-name'][0]}` } })],
    });
    const answer = await endpoint.ask();
    expect([answer.status, answer.headers['ngrok-error-code']]).toEqual([500, 'ERR_NGROK_3900']);
    expect(answer.body).not.toContain('x-secret-name');
  });
});

describe('websockets', () => {
  const open = (host: string, headers = {}) =>
    new WebSocket(`ws://127.0.0.1:${scene.gateway.httpPort}/`, { headers: { host, ...headers } });

  /** The status with which an upgrade is rejected. */
  async function refusalOf(socket: WebSocket): Promise<number> {
    const [, response] = (await once(socket, 'unexpected-response')) as [unknown, { statusCode: number }];
    socket.on('error', () => {}).terminate();
    return response.statusCode;
  }

  it('run the request and the response phase', async () => {
    const { host } = await scene.bind({
      on_http_request: [rule('add-headers', { headers: { 'x-by': 'policy' } })],
      on_http_response: [rule('add-headers', { headers: { 'x-status': `\${res.status_code}` } })],
    });
    const socket = open(host);
    const message = once(socket, 'message');
    const [{ headers }] = (await once(socket, 'upgrade')) as [{ headers: Record<string, string> }];
    expect([headers['x-status'], String((await message)[0])]).toEqual(['101', 'policy']);
    socket.terminate();
  });

  it('can be rejected before and after the upstream has agreed', async () => {
    for (const policy of [
      { on_http_request: [rule('deny')] },
      { on_http_response: [rule('custom-response', { status_code: 403 })] },
    ]) {
      expect(await refusalOf(open((await scene.bind(policy)).host))).toBe(403);
    }
  });

  it('wait for an asynchronous policy', async () => {
    const { host } = await scene.bind(waitingPolicy());
    const asked = new Promise<void>((resolve) => {
      waiting = resolve;
    });
    const refused = refusalOf(open(host, { authorization: TOKEN }));
    await asked;
    release(Buffer.from('{"keys":[]}'));
    expect(await refused).toBe(401);
  });
});

/** Well-formed, of the right issuer, and unsigned. */
const TOKEN = [
  { alg: 'ES256', kid: 'k' },
  { iss: 'https://issuer.example', exp: 4_000_000_000 },
]
  .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
  .concat(Buffer.alloc(64).toString('base64url'))
  .join('.');

let urls = 0;

/** Fetches a separate key set for each policy. */
function waitingPolicy(): object {
  return {
    on_http_request: [
      rule('jwt-validation', {
        issuer: { allow_list: [{ value: 'https://issuer.example' }] },
        http: { tokens: [{ type: 'jwt', method: 'header', name: 'authorization' }] },
        jws: {
          allowed_algorithms: ['ES256'],
          keys: { sources: { additional_jkus: [`https://issuer.example/${++urls}`] } },
        },
      }),
    ],
  };
}

describe('an asynchronous policy', () => {
  it('answers 404 when the endpoint goes offline meanwhile', async () => {
    const endpoint = await scene.bind(waitingPolicy());
    const asked = new Promise<void>((resolve) => {
      waiting = resolve;
    });
    const answer = endpoint.ask({ headers: { authorization: TOKEN } });
    await asked;
    await endpoint.listener.close();
    release(Buffer.from('{"keys":[]}'));
    expect(await answer).toMatchObject({ status: 404, headers: { 'ngrok-error-code': 'ERR_NGROK_3200' } });
  });

  it('sends nothing to the upstream when the client has disconnected', async () => {
    const endpoint = await scene.bind({
      on_http_request: [rule('verify-webhook', { provider: 'github', secret: 's', enforce: false })],
    });
    const before = scene.arrived;
    const socket = connect(scene.gateway.httpPort, '127.0.0.1');
    socket.write(`POST / HTTP/1.1\r\nHost: ${endpoint.host}\r\nContent-Length: 10\r\n\r\nhalf`);
    await once(socket, 'connect');
    // Once a later request is answered, the gateway has read the first half.
    await endpoint.status();
    socket.resetAndDestroy();
    expect(await endpoint.status()).toBe(200);
    expect(scene.arrived - before).toBe(2);
  });

  it('does not treat a body that is too long as empty', async () => {
    const endpoint = await scene.bind({
      on_http_request: [rule('verify-webhook', { provider: 'github', secret: 's' })],
    });
    const signature = `sha256=${createHmac('sha256', 's').digest('hex')}`;
    const headers = { 'x-hub-signature-256': signature, 'transfer-encoding': 'chunked' };
    const before = scene.arrived;
    expect(await endpoint.status({ headers, body: 'x'.repeat(1024 * 1024 + 1) })).toBe(403);
    expect(scene.arrived).toBe(before);
    expect(await endpoint.status({ method: 'POST', headers: { 'x-hub-signature-256': signature } })).toBe(200);
  });

  it('forwards the body that it has read, and keeps the connection open', async () => {
    const { host } = await scene.bind({
      on_http_request: [rule('verify-webhook', { provider: 'github', secret: 's' })],
    });
    const socket = connect(scene.gateway.httpPort, '127.0.0.1');
    const post = (body: string, signed: string, more = '') => {
      const signature = createHmac('sha256', 's').update(signed).digest('hex');
      const head = `POST / HTTP/1.1\r\nHost: ${host}\r\nX-Hub-Signature-256: sha256=${signature}\r\n${more}`;
      socket.write(`${head}Content-Length: ${body.length}\r\n\r\n${body}`);
    };
    post('forged', 'real');
    post('honest', 'honest', 'Connection: close\r\n');
    const text = (await collect(socket)).toString();
    expect(text.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 403', 'HTTP/1.1 200']);
    expect(text).toContain('"body":"honest"');
  });
});

it('hides the results of a connection’s phase from the policies of other endpoints', async () => {
  const policy = (allow: string) => ({
    on_tcp_connect: [rule('restrict-ips', { allow: [allow], enforce: false })],
    on_http_request: [rule('custom-response', { body: `\${actions.ngrok.restrict_ips.action}` })],
  });
  const [one, other] = [await scene.bind(policy('127.0.0.1')), await scene.bind(policy('10.0.0.1'))];
  const socket = connect(scene.gateway.httpPort, '127.0.0.1');
  socket.write(`GET / HTTP/1.1\r\nHost: ${one.host}\r\n\r\n`);
  await once(socket, 'data');
  socket.write(`GET / HTTP/1.1\r\nHost: ${other.host}\r\nConnection: close\r\n\r\n`);
  expect((await collect(socket)).toString()).toMatch(/deny$/);
  expect((await ask(scene.gateway.httpPort, one.host)).body).toBe('allow');
});

describe('endpoints with the same policy', () => {
  it('count and log separately', async () => {
    const limit = {
      name: 'one',
      algorithm: 'sliding_window',
      capacity: 1,
      rate: '60s',
      bucket_key: ['conn.client_ip'],
    };
    const policy = { on_http_request: [rule('rate-limit', limit), rule('log', { metadata: {} })] };
    const endpoints = [await scene.bind(policy), await scene.bind(policy), await scene.bind(policy)];
    for (const endpoint of endpoints) {
      expect([await endpoint.status(), await endpoint.status()]).toEqual([200, 429]);
      expect(scene.lines.filter(({ url }) => String(url).includes(endpoint.host))).toHaveLength(1);
    }
  });

  it('are rejected one by one: for their protocol, and for deleted resources', async () => {
    const terminate = { on_tcp_connect: [rule('terminate-tls', {})] };
    await scene.bind(terminate, { scheme: 'HTTPS' });
    await expect(scene.bind(terminate, { scheme: 'HTTP' })).rejects.toThrow('has no TLS to terminate');

    const { store } = scene.gateway;
    const id = store.ids.next('ipp');
    const row = { id, created_at: store.now(), description: null, metadata: null };
    await store.database.write(() => store.ipPolicies.insert(row));
    const restrict = { on_http_request: [rule('restrict-ips', { ip_policies: [id] })] };
    await scene.bind(restrict);
    await store.database.write(() => store.ipPolicies.delete(id));
    await expect(scene.bind(restrict)).rejects.toThrow('names an unknown IP policy');
  });

  it('run the response phase of an internal endpoint for each endpoint that forwards to it', async () => {
    const marking = { on_http_response: [rule('add-headers', { headers: { 'x-marked': 'yes' } })] };
    await scene.bind(marking, { domain: 'first.internal', scheme: 'HTTPS' });
    await scene.bind(marking, { domain: 'second.internal', scheme: 'HTTPS' });
    const forward = await scene.bind({
      on_http_request: [rule('forward-internal', { url: 'https://second.internal' })],
    });
    expect((await forward.ask()).headers['x-marked']).toBe('yes');
  });
});
