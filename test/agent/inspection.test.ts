import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import { constants, deflateRawSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { WebSocketServer } from 'ws';
import type {
  InspectionReport,
  MessageReport,
  RequestDetail,
  RequestSummary,
  RequestsChange,
} from '../../src/agent/api/inspection/inspection-reports.ts';
import { CLI, deviceAgent } from '../support/agent-process.ts';
import { CONNECTORS } from '../support/connectors.ts';
import { listening, serving } from '../support/loopback.ts';
import { sharedFolder, temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';
import { Device } from './device.ts';

/** Responses that wait for the test. */
const held = new Map<string, ServerResponse>();
const service = createServer((req, res) => {
  if (req.url?.startsWith('/held')) {
    res.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
    held.set(req.url, res);
  } else if (req.url === '/gzip') {
    res.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }).end(gzipSync('{"ok":true}'));
  } else {
    req.pipe(res);
  }
});
const webSockets = new WebSocketServer({ server: service, perMessageDeflate: { threshold: 0 } });
webSockets.on('connection', (socket) =>
  socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary })),
);
beforeAll(async () => {
  await listening(service);
});
afterAll(() => {
  service.closeAllConnections();
  service.close();
});

describe.each(CONNECTORS)('with the connector %s', (connector) => {
  const HOST = 'cam.localhost';
  const folder = sharedFolder();
  let device: Device;
  beforeAll(async () => {
    device = await Device.start(folder, { AGENT_CONNECTOR: connector });
    const forwards_to = (service.address() as AddressInfo).port;
    expect((await device.post({ domain: HOST, forwards_to })).status).toBe(200);
  });
  afterAll(async () => {
    await device.agent.end();
  });

  const call = <T>(path: string, method = 'GET', body?: object, tunnel = 'cam') =>
    callTunnel<T>(device, tunnel, path, method, body);
  const switchOn = () => call('inspection', 'PUT', {});
  /** The captured request with that path, once it is complete. */
  const captured = async (path: string, isReady = ({ state }: RequestSummary) => state === 'complete') => {
    let found: RequestSummary | undefined;
    await until(
      async () => {
        [found] = await call<RequestSummary[]>(`requests?path=${path}&limit=1`);
        return found !== undefined && isReady(found);
      },
      `${path} is captured`,
      { everyMs: 20 },
    );
    return call<RequestDetail>(`requests/${found?.id}`);
  };
  const isResponseHeld = (path: string) =>
    until(async () => held.has(path), `the upstream has ${path}`, { everyMs: 5 });

  it('a request that is under way when inspection starts and ends is answered whole', async () => {
    // The first time, the SDK's tunnel is opened again through the relay, which ends its connections.
    await switchOn();
    await call('inspection', 'DELETE');
    const first = device.open(HOST, { path: `/held-1-${connector}` });
    await isResponseHeld(`/held-1-${connector}`);
    await switchOn();
    const second = device.open(HOST, { path: `/held-2-${connector}` });
    await isResponseHeld(`/held-2-${connector}`);
    await call('inspection', 'DELETE');
    for (const path of [`/held-1-${connector}`, `/held-2-${connector}`]) held.get(path)?.end('data: whole\n\n');
    expect([await text(await first), await text(await second)]).toEqual(['data: whole\n\n', 'data: whole\n\n']);
    await switchOn();
    expect(await device.get(HOST, { path: '/gzip' })).toMatchObject({ status: 200 });
  });

  it('requests are captured with headers, decoded bodies and the client', async () => {
    await switchOn();
    const agent = new HttpsAgent({ keepAlive: true });
    for (const path of ['/gzip', '/echo?token=abc']) {
      await device.get(HOST, {
        path,
        agent,
        method: 'POST',
        body: 'password=abc',
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
      });
    }
    agent.destroy();
    const echo = await captured('/echo');
    expect(echo).toMatchObject({
      method: 'POST',
      path: '/echo?token=[masked]',
      status: 200,
      client: '127.0.0.1',
      host: expect.stringContaining(HOST),
      request: { body: { text: 'password=[masked]', bytes: 12 } },
    });
    expect((await captured('/gzip')).response?.body).toMatchObject({ text: '{"ok":true}', content_encoding: 'gzip' });
  });

  it('messages of WebSockets and server-sent events appear as they come', async () => {
    await switchOn();
    const socket = await device.webSocket(HOST);
    socket.send('{"hello": 1}');
    await once(socket, 'message');
    const { id, kind } = await captured('/', ({ messages }) => messages >= 2);
    expect(kind).toBe('websocket');
    const messages = await call<{ from: string; text: string }[]>(`requests/${id}/messages`);
    expect(messages.map(({ from, text }) => [from, text])).toEqual([
      ['client', '{"hello": 1}'],
      ['upstream', '{"hello": 1}'],
    ]);
    socket.close();
    await once(socket, 'close');

    const path = `/held-events-${connector}`;
    const response = device.open(HOST, { path });
    await isResponseHeld(path);
    held.get(path)?.write('event: tick\ndata: 1\n\n');
    const events = await captured(path, ({ messages }) => messages === 1);
    expect(events).toMatchObject({ state: 'open', kind: 'events' });
    held.get(path)?.end();
    await text(await response);
    expect((await captured(path)).messages).toBe(1);
  });

  it('the live feed sends new requests, and a replay reaches the upstream', async () => {
    await switchOn();
    await device.get(HOST, { path: '/first', method: 'PUT', body: 'again' });
    const first = await captured('/first');
    const stop = new AbortController();
    const feed = await fetch(`${device.api}/tunnels/cam/requests/events`, { signal: stop.signal });
    const replayed = await call<RequestDetail>(`requests/${first.id}/replay`, 'POST', { path: '/second' });
    expect(replayed).toMatchObject({ state: 'complete', status: 200, replay_of: first.id });
    expect(replayed.response?.body?.text).toBe('again');
    const paths: string[] = [];
    for await (const change of changes(feed)) {
      paths.push(...(change.requests ?? []).map(({ path }) => path));
      if (paths.includes('/second')) break;
    }
    stop.abort();
    expect(paths).toContain('/second');
  });

  it('device-agent watch prints requests, and inspection is on as long as it runs', async () => {
    const env = { PATH: process.env.PATH, AGENT_PORT: new URL(device.api).port };
    const watching = spawn(process.execPath, [CLI, 'watch', 'cam', '--path', 'watched'], { cwd: folder, env });
    const ended = once(watching, 'exit');
    let output = '';
    watching.stdout.on('data', (bytes: Buffer) => {
      output += bytes.toString();
    });
    const state = async () => (await call<InspectionReport>('inspection')).state;
    await call('inspection', 'DELETE');
    await until(async () => output.includes('PATH') && (await state()) === 'on', 'watch is ready', { everyMs: 50 });
    await device.get(HOST, { path: '/other' });
    await device.get(HOST, { path: '/watched?token=abc' });
    await until(() => output.includes('/watched'), 'the request is printed', { everyMs: 20 });
    watching.kill('SIGINT');
    expect(await ended).toEqual([0, null]);
    expect(output).toMatch(/^TIME +ID .*\n\S+ +\d+ +GET +200 .* \/watched\?token=\[masked\]\n$/);
    expect(await state()).toBe('off');
    const [request] = await call<RequestSummary[]>('requests?path=watched');
    const run = (...args: string[]) => deviceAgent(['watch', 'cam', ...args], folder, { AGENT_PORT: env.AGENT_PORT });
    expect((await run('--show', String(request?.id))).stdout).toContain('GET /watched?token=[masked] HTTP/1.1\n');
    expect((await run('--curl', String(request?.id), '--reveal')).stdout).toMatch(
      /^curl --cacert \S+ca\.pem '.*\/watched\?token=abc'/,
    );
    await run('--har', 'cam.har', '--path', 'watched');
    const { log } = JSON.parse(readFileSync(join(folder, 'cam.har'), 'utf8'));
    expect(log.entries.length).toBe(1);
    expect((await run('--show', '999999')).code).toBe(4);
  });

  it('requests have the rules that acted, also those that the gateway answers', async () => {
    const rule = (path: string, type: string, config: object) => ({
      expressions: [`req.url.path == '${path}'`],
      actions: [{ type, config }],
    });
    const policy = {
      on_http_request: [
        { name: 'keep out', ...rule('/secret', 'deny', { status_code: 403 }) },
        rule('/old', 'url-rewrite', { from: '/old', to: '/new' }),
      ],
      on_http_response: [{ actions: [{ type: 'add-headers', config: { headers: { 'x-a': 'b' } } }] }],
    };
    const { port } = service.address() as AddressInfo;
    await device.post({ domain: 'rules.localhost', forwards_to: port, policy });
    await call('inspection', 'PUT', {}, 'rules');
    await until(
      async () => (await call<InspectionReport>('inspection', 'GET', undefined, 'rules')).gateway_reports === 'on',
      'the gateway reports requests',
      { everyMs: 20 },
    );
    expect((await device.get('rules.localhost', { path: '/secret?token=abc' })).status).toBe(403);
    expect((await device.get('rules.localhost', { path: '/old?token=abc' })).status).toBe(200);
    const reported = async (path: string) => {
      let found: RequestSummary | undefined;
      await until(
        async () => {
          [found] = await call<RequestSummary[]>(`requests?path=${path}`, 'GET', undefined, 'rules');
          return found !== undefined && found.answered_by !== null;
        },
        `${path} is reported`,
        { everyMs: 20 },
      );
      return call<RequestDetail>(`requests/${found?.id}`, 'GET', undefined, 'rules');
    };
    const denied = await reported('/secret');
    expect(denied).toMatchObject({
      method: 'GET',
      path: '/secret?token=[masked]',
      host: expect.stringContaining('rules.localhost'),
      client: '127.0.0.1',
      status: 403,
      answered_by: 'gateway',
      captured: false,
      replayable: false,
      response: null,
      gateway: {
        path: '/secret?token=[masked]',
        upstream_path: null,
        rules: [{ place: 'on_http_request[0]', name: 'keep out', actions: ['deny'], outcome: { status: 403 } }],
      },
    });
    expect(await reported('/new')).toMatchObject({
      path: '/new?token=[masked]',
      answered_by: 'upstream',
      captured: true,
      request: { headers: expect.arrayContaining([{ name: 'X-Forwarded-For', value: '127.0.0.1' }]) },
      gateway: {
        path: '/old?token=[masked]',
        upstream_path: '/new?token=[masked]',
        rules: [
          { place: 'on_http_request[1]', actions: ['url-rewrite'], outcome: { kind: 'continue' } },
          { place: 'on_http_response[0]', actions: ['add-headers'], outcome: { kind: 'continue' } },
        ],
      },
    });
    const replay = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' };
    expect((await fetch(`${device.api}/tunnels/rules/requests/${denied.id}/replay`, replay)).status).toBe(409);
    const shown = await deviceAgent(['watch', 'rules', '--show', denied.id], folder, {
      AGENT_PORT: new URL(device.api).port,
    });
    expect(shown.stdout).toContain('# answered by the gateway: rule 1 of on_http_request, keep out: deny, 403\n');
    const har = await call<{ log: { entries: { response: { status: number }; _gateway?: { rules: object[] } }[] } }>(
      'requests.har',
      'GET',
      undefined,
      'rules',
    );
    const entries = har.log.entries.map(({ response, _gateway }) => [response.status, _gateway?.rules.length]);
    expect(entries.sort()).toEqual([
      [200, 2],
      [403, 1],
    ]);
    await call('inspection', 'DELETE', undefined, 'rules');
    expect(await call<InspectionReport>('inspection', 'GET', undefined, 'rules')).toMatchObject({
      gateway_reports: 'off',
    });
  });

  it('an upstream that refuses connections is shown with the request', async () => {
    await device.post({ domain: 'gone.localhost', forwards_to: 1 });
    await call('inspection', 'PUT', {}, 'gone');
    expect((await device.get('gone.localhost', { path: '/x' })).status).toBe(502);
    await until(
      async () => {
        const [request] = await call<RequestSummary[]>('requests', 'GET', undefined, 'gone');
        return request?.path === '/x' && request.state === 'failed' && request.error?.includes('unreachable') === true;
      },
      'the failure is shown',
      { everyMs: 50 },
    );
  });
});

it.each(CONNECTORS)(
  'a flood of tiny compressed messages is shown as it was sent, and other tunnels answer meanwhile: connector %s',
  async (connector) => {
    // A device of its own: the flood takes the processor time that all captures of a device share.
    const device = await Device.start(temporaryFolder(), { AGENT_CONNECTOR: connector });
    onTestFinished(async () => void (await device.agent.end()));
    const sink = createServer((_, res) => void res.end('ok'));
    sink.on('upgrade', (_, socket) => {
      const head = ['Upgrade: websocket', 'Connection: Upgrade', 'Sec-WebSocket-Extensions: permessage-deflate'];
      socket.write(`HTTP/1.1 101 Switching Protocols\r\n${head.join('\r\n')}\r\n\r\n`);
      socket.on('error', () => {}).resume();
    });
    const port = await serving(sink);
    for (const domain of ['flooded.localhost', 'honest.localhost']) await device.post({ forwards_to: port, domain });
    await callTunnel(device, 'flooded', 'inspection', 'PUT', {});
    const flood = connect({
      host: '127.0.0.1',
      port: device.httpsPort,
      servername: 'flooded.localhost',
      ca: device.ca,
    });
    onTestFinished(() => void flood.destroy());
    const key = Buffer.alloc(16).toString('base64');
    flood.write(`GET /flood HTTP/1.1\r\nHost: flooded.localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n`);
    flood.write(
      `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n`,
    );
    await once(flood, 'data');
    // 'a', compressed, with a mask that changes nothing: nine bytes.
    const frame = Buffer.from([0xc1, 0x83, 0, 0, 0, 0, 0x4a, 0x04, 0x00]);
    // Fills the window to which each message may refer.
    const filling = deflateRawSync(Buffer.alloc(60_000, 'a'), { finishFlush: constants.Z_SYNC_FLUSH }).subarray(0, -4);
    flood.write(Buffer.concat([Buffer.from([0xc1, 0x80 | filling.length, 0, 0, 0, 0]), filling]));
    const flooding = Buffer.concat(Array.from({ length: 2_800 }, () => frame));
    const timer = setInterval(() => flood.write(flooding), 100);
    onTestFinished(() => clearInterval(timer));
    const summary = () => callTunnel<RequestSummary[]>(device, 'flooded', 'requests');
    const [{ id } = { id: '' }] = await summary();
    const lastShown = async () => {
      expect((await device.get('honest.localhost')).status).toBe(200);
      return (await callTunnel<MessageReport[]>(device, 'flooded', `requests/${id}/messages`)).at(-1);
    };
    // Without the limit, each is decompressed, and the other tunnel's answers take 0.8 s.
    await expect.poll(lastShown, { timeout: 30_000 }).toMatchObject({
      text: null,
      base64: 'SgQA',
      error: 'not decompressed: capturing takes too much processor time',
    });
    expect((await summary())[0]?.messages).toBeGreaterThan(100);
  },
  60_000,
);

/** What the device's API answers about a tunnel, which must be a success. */
async function callTunnel<T>(device: Device, tunnel: string, path: string, method = 'GET', body?: object): Promise<T> {
  const init = body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
  const answer = await fetch(`${device.api}/tunnels/${tunnel}/${path}`, { method, ...init });
  const content = await answer.text();
  expect([path, answer.ok, content.slice(0, 200)]).toEqual([path, true, expect.anything()]);
  return (content === '' ? null : JSON.parse(content)) as T;
}

/** The changes of a live feed. */
async function* changes(feed: Response): AsyncGenerator<RequestsChange> {
  let rest = '';
  for await (const bytes of feed.body ?? []) {
    rest += Buffer.from(bytes).toString();
    const events = rest.split('\n\n');
    rest = events.pop() ?? '';
    for (const event of events) {
      const data = /^event: change\ndata: (.*)$/.exec(event)?.[1];
      if (data !== undefined) yield JSON.parse(data) as RequestsChange;
    }
  }
}
