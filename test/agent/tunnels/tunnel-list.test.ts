import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TunnelNames } from '../../../src/agent/tunnels/tunnel-list.ts';
import { ApiError } from '../../../src/lib/errors.ts';

const parts = (...urls: string[]) => new TunnelNames(urls.map((url) => ({ url })));

describe('a part of the URL', () => {
  const tunnels = parts('https://device342.localhost:8443', 'https://cam.example.com', 'tcp://tcp.example.com:20001');

  it.each([
    ['device342', 'https://device342.localhost:8443'],
    ['DEVICE342', 'https://device342.localhost:8443'],
    ['device342.localhost', 'https://device342.localhost:8443'],
    ['device342.localhost:8443', 'https://device342.localhost:8443'],
    ['https://device342.localhost:8443', 'https://device342.localhost:8443'],
    ['https://device342.localhost:8443/', 'https://device342.localhost:8443'],
    ['cam.example.com:443', 'https://cam.example.com'],
    ['tcp.example.com:20001', 'tcp://tcp.example.com:20001'],
  ])('%s finds %s', (part, url) => {
    expect(tunnels.find(part).url).toBe(url);
  });

  it.each(['device', 'device34', 'evice342', 'localhost', 'device342.local', '8443', '', 'https:', 'cam.example'])(
    '%j finds nothing',
    (part) => {
      expect(() => tunnels.find(part)).toThrow(expect.objectContaining({ status: 404 }));
    },
  );

  it('is refused when it matches two tunnels, naming both', () => {
    const both = parts('https://cam.a.example', 'https://cam.b.example');
    expect(() => both.find('cam')).toThrow(expect.objectContaining({ status: 409, code: 'ERR_AGENT_AMBIGUOUS' }));
    expect(() => both.find('cam')).toThrow('https://cam.a.example and https://cam.b.example');
  });

  it('finds the later of two tunnels at one URL, so that both can be deleted', () => {
    const [first, copy] = [{ url: 'https://cam.a.example' }, { url: 'https://cam.a.example' }];
    expect(new TunnelNames([first, copy]).find('cam')).toBe(copy);
    const another = { url: 'https://cam.b.example' };
    expect(() => new TunnelNames([first, copy, another]).find('cam')).toThrow(expect.objectContaining({ status: 409 }));
    expect(new TunnelNames([first, copy, another]).find('cam.a.example')).toBe(copy);
  });

  it('matches a host before a first label', () => {
    expect(parts('https://cam.example.com', 'https://cam').find('cam').url).toBe('https://cam');
  });
});

it('the displayed part is the shortest that identifies the tunnel', () => {
  const shown = (...urls: string[]) => {
    const tunnels = urls.map((url) => ({ url }));
    const index = new TunnelNames(tunnels);
    return tunnels.map((tunnel) => index.shortestFor(tunnel));
  };
  expect(shown('https://a.localhost:8443', 'https://b.localhost:8443')).toEqual(['a', 'b']);
  expect(shown('https://cam.a.example', 'https://cam.b.example')).toEqual(['cam.a.example', 'cam.b.example']);
  expect(shown('tcp://t.example:1', 'tcp://t.example:2')).toEqual(['t.example:1', 't.example:2']);
  expect(shown('tls://x.example', 'https://x.example')).toEqual(['tls://x.example', 'https://x.example']);
  expect(shown('https://cam', 'https://cam.example')).toEqual(['cam', 'cam.example']);
});

it('the displayed part always finds its tunnel, and every match is exact', () => {
  const label = fc.constantFrom('a', 'b', 'ab', 'x-1');
  const host = fc.array(label, { minLength: 1, maxLength: 3 }).map((labels) => labels.join('.'));
  const url = fc
    .tuple(fc.constantFrom('https', 'tcp', 'tls'), host, fc.constantFrom('', ':1', ':8443'))
    .map(([scheme, name, port]) => `${scheme}://${name}${port}`);
  const urls = fc.uniqueArray(url, { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(urls, host, (all, probe) => {
      const tunnels = all.map((each) => ({ url: each }));
      const index = new TunnelNames(tunnels);
      for (const tunnel of tunnels) expect(index.find(index.shortestFor(tunnel))).toBe(tunnel);
      try {
        const { hostname } = new URL(index.find(probe).url);
        expect([hostname, hostname.split('.')[0]]).toContain(probe);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
      }
    }),
  );
});
