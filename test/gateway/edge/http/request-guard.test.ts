import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { TestEdge } from '../../../support/edge.ts';
import { ask } from '../../../support/http-request.ts';
import { askHttp2, openHttp2 } from '../../../support/http2-client.ts';

let edge: TestEdge;

beforeAll(async () => {
  edge = await TestEdge.start();
  const answer = (req: IncomingMessage, res: ServerResponse) => void req.resume().on('end', () => res.end('ok'));
  await edge.serve('cam.localhost', answer);
  await edge.serve('secure.localhost', answer, { protocol: 'https' });
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

it.each([
  'HTTP/1.0\r\n',
  'HTTP/1.0\r\nHost:\r\n',
  'HTTP/1.1\r\nHost:\r\n',
  'HTTP/1.1\r\nHost: :80\r\n',
  'HTTP/1.1\r\nHost: .\r\n',
])('rejects %j, which names no host, with 400', async (rest) => {
  const text = await edge.raw(`GET / ${rest}Connection: close\r\n\r\n`);
  expect(text).toMatch(/^HTTP\/1\.1 400 .*a Host header with a name is required/s);
});

describe.each(['1.1', '2'])('HTTP/%s: a request', (version) => {
  const path = '/a?b=c';
  const asked = async (host: string, target = path): Promise<number> => {
    if (version === '2') {
      const session = await openHttp2(edge, 'secure.localhost');
      onTestFinished(() => session.destroy());
      return Number((await askHttp2(session, { ':authority': host, ':path': target })).headers[':status']);
    }
    const text = await edge.raw(`GET ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    return Number(text.slice(9, 12));
  };
  const host = version === '2' ? 'secure.localhost' : 'cam.localhost';

  it.each([`${host}:x@evil`, `${host}:80@evil`, `user@${host}`, `${host}:80:81`, `[::1`])(
    'with the Host %j is rejected with 400',
    async (name) => {
      expect(await asked(name)).toBe(400);
    },
  );

  it('with a fragment is rejected with 400', async () => {
    expect(await asked(host, `${path}#frag`)).toBe(400);
    expect(await asked(host, `${path}%23frag`)).toBe(200);
  });

  it.each([host, `${host}.`, `${host}:`, `${host}:8443`, host.toUpperCase()])('for %s is served', async (name) => {
    expect(await asked(name)).toBe(200);
  });
});

it('still serves other clients', async () => {
  expect((await ask(edge.httpPort, 'cam.localhost')).body).toBe('ok');
});
