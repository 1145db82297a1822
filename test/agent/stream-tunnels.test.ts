import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { freePorts } from '../support/free-ports.ts';
import { listening, serving } from '../support/loopback.ts';
import { selfSigned } from '../support/self-signed.ts';
import { sharedFolder } from '../support/temporary-folder.ts';
import { Device } from './device.ts';

/** Greets, as SSH does. */
let service: Server;
let device: Device;
let settings: Record<string, string>;
const folder = sharedFolder();
beforeAll(async () => {
  service = createServer((socket: Socket) => socket.on('error', () => {}).end('SSH-2.0-device\r\n'));
  await listening(service);
  const { first, last } = await freePorts(8);
  settings = { GATEWAY_TCP_PORTS: `${first}-${last}` };
  device = await Device.start(folder, settings);
});
afterAll(async () => {
  await device.agent.end();
  service.close();
});

const servicePort = () => (service.address() as AddressInfo).port;

async function open(body: object = {}): Promise<{ url: string; domain: string }> {
  const answer = await device.post({ protocol: 'tcp', forwards_to: servicePort(), ...body });
  expect(answer.status).toBe(200);
  return (await answer.json()) as { url: string; domain: string };
}

/** The upstream's answer, or why the connection failed. */
async function greeting(url: string): Promise<string> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  const [first] = await Promise.race([once(socket, 'data'), once(socket, 'error')]).catch((error: unknown) => [error]);
  socket.destroy();
  return first instanceof Error ? String((first as NodeJS.ErrnoException).code) : String(first);
}

it('a tcp tunnel keeps its port when the agent is killed and restarted', async () => {
  const { url, domain } = await open();
  expect(url).toBe(`tcp://${domain}`);
  expect(domain).toMatch(/^localhost:\d+$/);
  expect(await greeting(url)).toBe('SSH-2.0-device\r\n');
  await device.agent.end('SIGKILL');
  expect(await greeting(url)).toBe('ECONNREFUSED');
  device = await Device.start(folder, settings);
  expect((await device.tunnels()).map((tunnel) => tunnel.url)).toContain(url);
  expect(await greeting(url)).toBe('SSH-2.0-device\r\n');
});

it('a tcp tunnel can request a port, and releases it when deleted', async () => {
  const { url, domain } = await open();
  expect(await device.delete(domain)).toBe(204);
  expect(await greeting(url)).toBe('ECONNREFUSED');
  expect((await open({ domain })).url).toBe(url);
  expect((await device.post({ protocol: 'tcp', forwards_to: servicePort(), domain })).status).toBe(409);
});

it('a tls tunnel passes the clients’ TLS to the upstream, also after a restart of the agent', async () => {
  const { cert, key } = await selfSigned();
  const port = await serving(createTlsServer({ cert, key }, (socket) => socket.on('error', () => {}).end('secret')));
  const answer = await device.post({ protocol: 'tls', forwards_to: port, domain: 'vault.localhost' });
  expect(await answer.json()).toMatchObject({ url: `tls://vault.localhost:${device.httpsPort}`, protocol: 'tls' });
  const ask = async () => {
    // Trusts only the upstream's certificate.
    const address = { host: '127.0.0.1', port: device.httpsPort, servername: 'vault.localhost', ca: cert };
    const client = connectTls({ ...address, checkServerIdentity: () => undefined });
    await once(client, 'secureConnect');
    return text(client);
  };
  expect(await ask()).toBe('secret');
  await device.agent.end();
  device = await Device.start(folder, settings);
  expect(await ask()).toBe('secret');
  expect(await device.delete('vault')).toBe(204);
  await expect(ask()).rejects.toThrow();
});

it('a tcp tunnel cannot forward to the port of a tunnel', async () => {
  const { domain } = await open();
  const looping = await device.post({ protocol: 'tcp', forwards_to: domain });
  expect([looping.status, await looping.text()]).toEqual([400, expect.stringContaining('port of a tcp tunnel')]);
});

/** Sends so many bytes to each client, or tells it how long so many took from it, in milliseconds. */
async function measuringUpstream(bytes: number): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    let [received, began] = [0, 0];
    socket.on('data', (chunk: Buffer) => {
      if (received === 0 && chunk[0] === 'd'.charCodeAt(0)) return void socket.end(Buffer.alloc(bytes));
      if (received === 0) began = performance.now();
      received += chunk.length;
      if (received >= bytes) socket.end(String(performance.now() - began));
    });
  });
  await listening(server);
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** Milliseconds until a client has got everything, from its first byte. */
async function download(url: string): Promise<{ ms: number; bytes: number }> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.write('d');
  let [bytes, began] = [0, 0];
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    if (bytes === 0) began = performance.now();
    bytes += chunk.length;
  }
  return { bytes, ms: performance.now() - began };
}

it('a tunnel with a bandwidth lets no more pass, in each direction, and shares it between clients', async () => {
  const bytes = 600_000;
  const forwards_to = await measuringUpstream(bytes);
  // 0.8 and 0.4 MB/s.
  const { url } = await open({ forwards_to, bandwidth: '6400kbit/3200kbit' });
  const all = await Promise.all([download(url), download(url)]);
  for (const { bytes: got, ms } of all) {
    expect(got).toBe(bytes);
    // Both are done at about the same time, after all bytes of both.
    expect(ms).toBeGreaterThan(((2 * bytes) / 800) * 0.9);
    expect(ms).toBeLessThan(((2 * bytes) / 800) * 3);
  }
  const sender = connect(Number(new URL(url).port), '127.0.0.1');
  sender.write(Buffer.alloc(bytes, 'u'));
  const took = Number(await text(sender));
  expect(took).toBeGreaterThan((bytes / 400) * 0.9);
  expect(took).toBeLessThan((bytes / 400) * 3);
  const name = (await device.tunnels()).find((tunnel) => tunnel.url === url)?.url_part ?? '';
  const change = (bandwidth: string | null) =>
    fetch(`${device.api}/tunnels/${encodeURIComponent(name)}`, {
      method: 'PATCH',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ bandwidth }),
    });
  expect((await change('fast')).status).toBe(400);
  expect(await (await change(null)).json()).not.toHaveProperty('bandwidth');
  expect((await download(url)).ms).toBeLessThan(((2 * bytes) / 800) * 0.5);
});
