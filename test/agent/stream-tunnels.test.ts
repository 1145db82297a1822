import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { afterAll, beforeAll, expect, it } from 'vitest';
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
