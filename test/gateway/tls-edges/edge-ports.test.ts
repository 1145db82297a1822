import { createServer } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePorts } from '../../support/free-ports.ts';
import { serving } from '../../support/loopback.ts';
import { EdgeScene } from './edge-scene.ts';

let scene: EdgeScene;
beforeAll(async () => {
  scene = await EdgeScene.start();
});
afterAll(() => scene.close());

/** A port opens and closes a moment after the API's answer. */
const AT_EDGE = { tls_termination: { terminate_at: 'edge' } };

it('a port closes with its last edge, and open connections continue', async () => {
  const host = scene.name();
  const { first: port } = await freePorts(1);
  const edge = await scene.edge(host, { ...AT_EDGE, hostports: [`${host}:443`, `${host}:${port}`] });
  await scene.tunnel(host);
  await expect.poll(() => scene.answer(host, { port })).toBe('hello me');
  expect(await scene.answer(host)).toBe('hello me');
  const open = await scene.connect(host, { port });
  await scene.change('PATCH', `/edges/tls/${edge}`, { hostports: [`${host}:443`] });
  await expect.poll(() => scene.connect(host, { port }).catch((error) => error.code)).toBe('ECONNREFUSED');
  expect(await scene.answer(host)).toBe('hello me');
  open.end('me');
  expect(await text(open)).toBe('hello me');
});

it('the same name reaches different edges at different ports, and other names none', async () => {
  const host = scene.name();
  const { first: port } = await freePorts(1);
  await scene.edge(host, AT_EDGE);
  await scene.tunnel(host, { says: 'main' });
  const backend_id = await scene.create('/backends/tunnel_group', { labels: { host: `${host}.further` } });
  await scene.create('/edges/tls', { ...AT_EDGE, hostports: [`${host}:${port}`], backend: { backend_id } });
  await scene.tunnel(`${host}.further`, { says: 'further' });
  await expect.poll(() => scene.answer(host, { port })).toBe('further me');
  expect(await scene.answer(host)).toBe('main me');
  const other = scene.name();
  await scene.session.httpEndpoint().domain(other).listen(false);
  await expect(scene.connect(other, { port })).rejects.toThrow(/unrecognized name/);
  await expect(scene.connect('connect.localhost', { port })).rejects.toThrow(/unrecognized name/);
});

it('a port in use does not affect other hostports', async () => {
  const host = scene.name();
  const port = await serving(createServer());
  await scene.edge(host, { ...AT_EDGE, hostports: [`${host}:${port}`, `${host}:443`] });
  await scene.tunnel(host);
  expect(await scene.answer(host)).toBe('hello me');
});
