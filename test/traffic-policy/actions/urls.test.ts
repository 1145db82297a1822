import { describe, expect, it } from 'vitest';
import type { PolicyAnswer } from '../../../src/traffic-policy/steps.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { bodyOf, headerIn, onRequest, respondWith, runRequest, statusOf } from './run-action.ts';

describe('redirect', () => {
  it.each([
    ['a whole URL', { to: 'https://other.com/x' }, '/', 'https://other.com/x'],
    ['a path', { to: '/new path' }, '/old', 'https://cam.example.com/new%20path'],
    ['what a pattern matches', { from: '/v1/(.*)', to: '/v2/$1' }, '/v1/a?b=1', 'https://cam.example.com/v2/a?b=1'],
    ['only the first match', { from: 'a', to: 'b' }, '/a', 'https://cbm.example.com/a'],
    ['with an inline flag', { from: '(?i)/OLD', to: '/new' }, '/old', 'https://cam.example.com/new'],
    ['with an expression', { from: '/x', to: `/\${req.method.lower()}` }, '/x', 'https://cam.example.com/get'],
    ['a path to another site', { from: '/old', to: 'https://b.com' }, '/old/a?b=1', 'https://b.com/a?b=1'],
    ['a host to another site', { from: '[^/]+/v1', to: 'HTTP://b.com/v2' }, '/v1/a', 'http://b.com/v2/a'],
    ['in the query to another site', { from: '/.*q=(.*)', to: 'https://b.com/$1' }, '/s?q=x', 'https://b.com/x'],
    [
      'a group that is a URL',
      { from: '/go/(.*)', to: '/$1' },
      '/go/http://b.com/',
      'https://cam.example.com/http://b.com/',
    ],
    ['in its authority', { from: `\${req.url.authority}/`, to: 'b.com/' }, '/p', 'https://b.com/p'],
  ])('redirects to %s', async (_, config, target, location) => {
    const { outcome } = await runRequest(onRequest({ type: 'redirect', config }), { target });
    expect(outcome).toMatchObject({ kind: 'answer', status: 302, refused: false });
    expect(headerIn((outcome as PolicyAnswer).headers, 'location')).toBe(location);
  });

  it('does nothing when the URL stays the same', async () => {
    const text = onRequest(
      { type: 'redirect', config: { from: '/old', to: '/new' } },
      respondWith('actions.ngrok.redirect.url'),
    );
    expect(bodyOf((await runRequest(text, { target: '/x' })).outcome)).toBe('https://cam.example.com/x');
    const same = onRequest({ type: 'redirect', config: { to: 'https://cam.example.com/x' } });
    expect((await runRequest(same, { target: '/x' })).outcome).toBeUndefined();
  });

  it('sends the configured status and headers', async () => {
    const config = { to: '/x', status_code: 308, headers: { 'x-a': '1' } };
    const { outcome } = await runRequest(onRequest({ type: 'redirect', config }));
    expect(outcome).toMatchObject({ status: 308, headers: ['x-a', '1', 'location', 'https://cam.example.com/x'] });
  });

  it('fails with 500 when an expression does not produce a valid pattern', async () => {
    const { outcome } = await runRequest(
      onRequest({ type: 'redirect', config: { from: `\${req.headers["x-p"][0]}`, to: '/' } }),
      {
        headers: ['x-p', '('],
      },
    );
    expect(outcome).toMatchObject({ status: 500, code: 'ERR_NGROK_3901' });
  });
});

describe('url-rewrite', () => {
  it.each([
    ['all matches', { from: 'a/', to: 'b/' }, '/a/a/x', '/b/b/x', 'cam.example.com'],
    ['groups', { from: '/api/(\\w+)/(\\w+)', to: '/$2/$1' }, '/api/x/y?z=1', '/y/x?z=1', 'cam.example.com'],
    ['the whole URL', { to: '/only' }, '/x', '/only', 'cam.example.com'],
    ['a path by another host', { from: '/old', to: 'http://inner.local/new' }, '/old/x', '/new/x', 'inner.local'],
    ['the host', { from: 'cam.example.com', to: 'inner.local' }, '/x', '/x', 'inner.local'],
    ['what would break the request line', { to: '/a b\r\nx\u00e9' }, '/x', '/a%20b%0D%0Ax%C3%A9', 'cam.example.com'],
    ['all of it once', { from: '.*', to: '/new' }, '/x', '/new', 'cam.example.com'],
    [
      'what is empty',
      { from: 'z*', to: '-' },
      '',
      '/-h-t-t-p-s-:-/-/-c-a-m-.-e-x-a-m-p-l-e-.-c-o-m-',
      'cam.example.com',
    ],
    ['a path with the slashes of the authority', { from: '/.*', to: '/new' }, '/x?y=1', '/new', 'cam.example.com'],
    [
      'the authority with its path',
      { from: `\${req.url.authority}/products/?([.*]+)?`, to: '/products.php?query=$1' },
      '/products/*',
      '/products.php?query=*',
      'cam.example.com',
    ],
    ['nothing', { from: 'nope', to: 'x' }, '/x', '/x', 'cam.example.com'],
  ])('replaces %s', async (_, config, target, rewritten, host) => {
    const { request, outcome } = await runRequest(onRequest({ type: 'url-rewrite', config }), { target });
    expect(outcome).toBeUndefined();
    expect(request.target).toBe(rewritten);
    expect(headerIn(request.headers, 'host')).toBe(host);
  });

  it('takes effect for later rules', async () => {
    const text = onRequest({ type: 'url-rewrite', config: { from: '/a', to: '/b' } }, respondWith('req.url.path'));
    expect(bodyOf((await runRequest(text, { target: '/a' })).outcome)).toBe('/b');
  });

  it.each(['https://', 'https://a b/', 'https://x\r\ny/'])('fails for the invalid URL %j', async (to) => {
    const { outcome } = await runRequest(onRequest({ type: 'url-rewrite', config: { to } }));
    expect(statusOf(outcome)).toBe(500);
  });

  it.each(['x.*y|x', '(x+x+)+y|x', '(?:x|xx|xxx).*y|x'])(
    'gives up where %j makes it search all over again',
    async (from) => {
      const text = onRequest({ type: 'url-rewrite', config: { from, to: 'z' } });
      const before = process.cpuUsage();
      const { outcome } = await runRequest(text, { target: `/${'x'.repeat(16_000)}` });
      expect(outcome).toMatchObject({ status: 500, code: 'ERR_NGROK_2300' });
      expect(process.cpuUsage(before).user / 1000).toBeLessThan(2000);
    },
  );

  it('replaces hundreds of matches in a long URL', async () => {
    const text = onRequest({ type: 'url-rewrite', config: { from: '%20', to: '+' } });
    // Time stands still: a busy machine could use up what a phase may take.
    const { request } = await runRequest(text, { target: `/${'abc%20'.repeat(500)}` }, { clock: new SteeredClock() });
    expect(request.target).toBe(`/${'abc+'.repeat(500)}`);
  });
});
