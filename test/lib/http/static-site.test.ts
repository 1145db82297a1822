import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import express from 'express';
import request from 'supertest';
import { expect, it } from 'vitest';
import { staticSite } from '../../../src/lib/http/static-site.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const BROWSER = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8';

function setUp() {
  const folder = temporaryFolder();
  for (const name of ['device', 'assets']) mkdirSync(join(folder, name));
  const files = { 'device/index.html': 'page', 'assets/device-Ab1.js': 'script' };
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(join(folder, name), content);
    writeFileSync(join(folder, `${name}.br`), brotliCompressSync(content));
    writeFileSync(join(folder, `${name}.gz`), gzipSync(content));
  }
  writeFileSync(join(folder, 'secret.js'), 'secret');
  const app = express();
  app.use(staticSite(folder, 'device'));
  app.use((_req, res) => void res.status(404).json({}));
  return app;
}

it('browsers get the page, and may neither frame it nor run anything inline', async () => {
  const { status, headers, text } = await request(setUp()).get('/').set('Accept', BROWSER).set('Accept-Encoding', 'x');
  expect([status, text]).toEqual([200, 'page']);
  expect(headers['content-security-policy']).toMatch(/default-src 'none'.*script-src 'self'.*frame-ancestors 'none'/);
  expect(headers['content-security-policy']).not.toMatch(/unsafe|https?:|\*/);
  expect(headers).toMatchObject({
    'x-frame-options': 'DENY',
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cross-origin-resource-policy': 'same-origin',
    'cross-origin-opener-policy': 'same-origin',
    'cache-control': 'no-cache',
  });
});

it.each(['*/*', 'application/json', 'application/json, text/html;q=0.5'])(
  'a client that accepts %s does not get the page',
  async (accept) => {
    expect((await request(setUp()).get('/').set('Accept', accept)).status).toBe(404);
  },
);

it.each([
  ['gzip, deflate, br', 'br'],
  ['gzip', 'gzip'],
  ['br;q=0, gzip', 'gzip'],
  ['identity', undefined],
])('files for Accept-Encoding: %s are sent in %s, and kept for a year', async (accepted, encoding) => {
  const answer = await request(setUp())
    .get('/assets/device-Ab1.js')
    .set('Accept-Encoding', accepted)
    .buffer(true)
    .parse((_res, done) => done(null, null));
  expect([answer.status, answer.headers['content-encoding']]).toEqual([200, encoding]);
  expect(answer.headers['cache-control']).toBe('public, max-age=31536000, immutable');
  expect(answer.headers['content-type']).toContain('text/javascript');
});

it.each(['..%2fsecret.js', '%2e%2e/secret.js', 'device-Ab1.js.br', 'none.js', '..', 'device-Ab1.js%00'])(
  'there is no file /assets/%s',
  async (name) => {
    expect((await request(setUp()).get(`/assets/${name}`)).status).toBe(404);
  },
);

it('answers 404 where the build has no page', async () => {
  const app = express();
  app.use(staticSite(temporaryFolder(), 'device'));
  expect((await request(app).get('/').set('Accept', BROWSER)).status).toBe(404);
});
