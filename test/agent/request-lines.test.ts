import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { CONNECTORS } from '../support/connectors.ts';
import { listening } from '../support/loopback.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { Device } from './device.ts';

it.each(CONNECTORS)('an agent with LOG_REQUESTS logs a line for each request of a tunnel (%s)', async (connector) => {
  const upstream = createServer((_req, res) => res.writeHead(201).end('hello'));
  await listening(upstream);
  const folder = temporaryFolder();
  const device = await Device.start(folder, { LOG_REQUESTS: 'true', AGENT_CONNECTOR: connector });
  onTestFinished(async () => {
    await device.agent.end();
    upstream.close();
  });
  const { port } = upstream.address() as AddressInfo;
  const created = await device.post({ forwards_to: port, domain: 'cam.localhost' });
  const { url } = (await created.json()) as { url: string };
  expect(await device.get('cam.localhost', { path: '/a?token=s3cret' })).toMatchObject({ status: 201, body: 'hello' });
  expect(await device.agent.logged('upstream request')).toMatchObject({
    level: 'info',
    url,
    method: 'GET',
    path: '/a?token=[masked]',
    status: 201,
    request_bytes: 0,
    response_bytes: 5,
    duration_ms: expect.any(Number),
  });
});
