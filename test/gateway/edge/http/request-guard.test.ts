import { afterAll, beforeAll, expect, it } from 'vitest';
import { TestEdge } from '../../../support/edge.ts';
import { ask } from '../../../support/http-request.ts';

let edge: TestEdge;

beforeAll(async () => {
  edge = await TestEdge.start();
  await edge.serve('cam.localhost', (req, res) => req.resume().on('end', () => res.end('ok')));
});
afterAll(() => edge.close());

const HOST = 'Host: cam.localhost\r\n';

it('rejects headers above the size limit with 431', async () => {
  const text = await edge.raw(`GET / HTTP/1.1\r\n${HOST}X-A: ${'a'.repeat(70_000)}\r\n\r\n`);
  expect(text).toMatch(/^HTTP\/1\.1 431 /);
});

it('rejects more than 200 headers with 400', async () => {
  const many = Array.from({ length: 300 }, (_, at) => `X-${at}: 1\r\n`).join('');
  expect(await edge.raw(`GET / HTTP/1.1\r\n${HOST}${many}\r\n`)).toMatch(/^HTTP\/1\.1 400 /);
});

it('still serves other clients', async () => {
  expect((await ask(edge.httpPort, 'cam.localhost')).body).toBe('ok');
});
