import { createServer as createPlain, type IncomingMessage, type RequestListener } from 'node:http';
import { createServer } from 'node:https';
import { text } from 'node:stream/consumers';
import { beforeAll, describe, expect, it } from 'vitest';
import { type LocalCa, openLocalCa } from '../../src/gateway/certificates/local-ca/local-ca.ts';
import { type ProxyRules, parseProxy } from '../../src/lib/network/proxy-rules.ts';
import { ManagementClient } from '../../src/management/client.ts';
import { fetchTrusting } from '../../src/management/fetch-trusting.ts';
import { TIMEOUT, UNREACHABLE } from '../../src/management/management-error.ts';
import { serving } from '../support/loopback.ts';
import { TestProxy } from '../support/proxies.ts';
import { silentLog } from '../support/silent-log.ts';
import { sharedFolder, temporaryFolder } from '../support/temporary-folder.ts';

const BOT = {
  id: 'bot_1',
  uri: 'https://x/bot_users/bot_1',
  name: 'a',
  active: true,
  created_at: '2025-01-01T00:00:00Z',
};

const folder = sharedFolder();
let ca: LocalCa;
beforeAll(async () => {
  ca = await openLocalCa(folder, silentLog);
});

/** Starts an API at a name that only the client resolves, with a certificate of the test's CA. */
async function serve(answer: RequestListener): Promise<string> {
  const port = await serving(createServer(await ca.issue(['api.localhost']), answer));
  return `https://api.localhost:${port}`;
}

const clientOf = (baseUrl: string, pem = ca.caPem) =>
  new ManagementClient({ baseUrl, apiKey: 'key_1', ca: pem, retries: 0, timeoutMs: 500 });

it('connects to the address that it is given, wherever the name in the URL leads', async () => {
  const pair = await ca.issue(['api.gateway.test']);
  const port = await serving(createServer(pair, (req, res) => res.end(req.headers.host)));
  const send = fetchTrusting({ ca: ca.caPem, address: { host: '127.0.0.1', port } });
  const request = { method: 'GET', headers: {}, redirect: 'manual', signal: AbortSignal.timeout(20_000) } as const;
  expect(await (await send('https://api.gateway.test/', request)).text()).toBe('api.gateway.test');
});

it('a client without a CA finds names below localhost too, and says what it needs', async () => {
  const url = await serve((_, res) => void res.end());
  const client = new ManagementClient({ baseUrl: url, apiKey: 'key_1', retries: 0 });
  await expect(client.botUsers.get('bot_1')).rejects.toThrow(/; pass the gateway's current ca\.pem as `ca`/);
});

describe('a client with its own CA', () => {
  it('reads and writes below localhost without the system’s resolver', async () => {
    const received: [IncomingMessage, string][] = [];
    const url = await serve(async (req, res) => {
      received.push([req, await text(req)]);
      res.writeHead(201, { 'content-type': 'application/json' }).end(JSON.stringify(BOT));
    });
    expect(await clientOf(url).botUsers.create({ name: 'ä' })).toEqual(BOT);
    const [request, body] = received[0] ?? [];
    expect(JSON.parse(String(body))).toEqual({ name: 'ä' });
    expect(request).toMatchObject({ method: 'POST', url: '/bot_users' });
    expect(request?.headers).toMatchObject({
      authorization: 'Bearer key_1',
      'content-type': 'application/json',
      'ngrok-version': '2',
      host: new URL(url).host,
    });
  });

  it('accepts a response without a body', async () => {
    const url = await serve((_req, res) => res.writeHead(204).end());
    await expect(clientOf(url).botUsers.delete('bot_1')).resolves.toBeUndefined();
  });

  it('reports a redirect without following it', async () => {
    const url = await serve((req, res) => {
      if (req.url === '/elsewhere') throw new Error('it was followed');
      res.writeHead(302, { location: '/elsewhere' }).end();
    });
    await expect(clientOf(url).botUsers.get('bot_1')).rejects.toMatchObject({
      status: 302,
      message: expect.stringContaining('redirected to /elsewhere'),
    });
  });

  it('rejects a certificate of another CA before it sends a request', async () => {
    const other = temporaryFolder();
    let asked = false;
    const url = await serve(() => {
      asked = true;
    });
    const distrustful = clientOf(url, (await openLocalCa(other, silentLog)).caPem);
    await expect(distrustful.botUsers.get('bot_1')).rejects.toMatchObject({ code: UNREACHABLE });
    expect(asked).toBe(false);
  });

  it('stops waiting at its timeout, and when the caller aborts', async () => {
    const url = await serve((_req, res) => void res.writeHead(200).write('{'));
    await expect(clientOf(url).botUsers.get('bot_1')).rejects.toMatchObject({ code: TIMEOUT });
    const abort = new AbortController();
    const call = clientOf(url).botUsers.get('bot_1', { signal: abort.signal });
    abort.abort(new Error('not wanted any more'));
    await expect(call).rejects.toThrow('not wanted any more');
  });
});

describe('a client behind a proxy', () => {
  const behind = (baseUrl: string, proxies: ProxyRules) =>
    new ManagementClient({ baseUrl, apiKey: 'key_1', retries: 0, fetch: fetchTrusting({ ca: ca.caPem, proxies }) });
  const all = (url: string): ProxyRules => ({ https: null, http: null, all: parseProxy(url), exempt: () => false });

  it.each([
    ['http', () => TestProxy.http({ credentials: 'me:secret' })],
    ['socks5', () => TestProxy.socks({ credentials: 'me:secret' })],
  ])('sends requests through %s, and the proxy resolves the name', async (scheme, start) => {
    const received: string[] = [];
    const url = await serve(async (req, res) => {
      received.push(await text(req));
      res.writeHead(201, { 'content-type': 'application/json' }).end(JSON.stringify(BOT));
    });
    const { host } = new URL(url);
    const proxy = await start();
    proxy.lead(host, `127.0.0.1:${new URL(url).port}`);
    const client = behind(url, all(`${scheme}://me:secret@${proxy.address}`));
    expect(await client.botUsers.create({ name: 'a' })).toEqual(BOT);
    expect(received.map((body) => JSON.parse(body))).toEqual([{ name: 'a' }]);
    expect(proxy.asked).toEqual([host]);
  });

  it('uses the http proxy for an API without TLS', async () => {
    const server = createPlain((_req, res) => res.writeHead(204).end());
    const address = `127.0.0.1:${await serving(server)}`;
    const proxy = await TestProxy.http();
    const rules = { ...all('http://127.0.0.1:1'), http: parseProxy(proxy.address) };
    await expect(behind(`http://${address}`, rules).botUsers.delete('bot_1')).resolves.toBeUndefined();
    expect(proxy.asked).toEqual([address]);
  });

  it('asks the proxy for the address that is to be called, and requires the certificate of the name', async () => {
    const { port } = new URL(await serve((_req, res) => res.writeHead(204).end()));
    const proxy = await TestProxy.http();
    proxy.lead(`connect.test:${port}`, `127.0.0.1:${port}`);
    const proxies = all(`http://${proxy.address}`);
    const send = fetchTrusting({ ca: ca.caPem, proxies, address: { host: 'connect.test', port: Number(port) } });
    const request = { method: 'GET', headers: {}, redirect: 'manual', signal: AbortSignal.timeout(5_000) } as const;
    expect((await send(`https://api.localhost:${port}/`, request)).status).toBe(204);
    await expect(send(`https://api.other.test:${port}/`, request)).rejects.toThrow(/does not match certificate/);
    expect(new Set(proxy.asked)).toEqual(new Set([`connect.test:${port}`]));
  });

  it('rejects another host’s certificate, and names a proxy that refuses to connect', async () => {
    const url = await serve((_req, res) => res.writeHead(204).end());
    const { host, port } = new URL(url);
    const elsewhere = await TestProxy.http();
    elsewhere.lead(`api.other.test:${port}`, `127.0.0.1:${port}`);
    const misled = behind(`https://api.other.test:${port}`, all(`http://${elsewhere.address}`));
    await expect(misled.botUsers.get('bot_1')).rejects.toMatchObject({
      code: UNREACHABLE,
      message: expect.stringContaining('does not match certificate'),
    });
    const closed = await TestProxy.http({ refusal: 403 });
    await expect(behind(url, all(`http://${closed.address}`)).botUsers.get('bot_1')).rejects.toMatchObject({
      code: UNREACHABLE,
      message: expect.stringMatching(new RegExp(`proxy http://${closed.address} cannot connect to ${host}.*403`)),
    });
  });
});
