import { describe, expect, it } from 'vitest';
import { displayProxy, NO_PROXIES, parseNoProxy, parseProxy, proxyFor } from '../../../src/lib/network/proxy-rules.ts';

describe('parseProxy', () => {
  it.each([
    ['http://proxy.lan:3128', { kind: 'http', host: 'proxy.lan', port: 3128, credentials: null }],
    ['proxy.lan:3128', { kind: 'http', host: 'proxy.lan', port: 3128, credentials: null }],
    ['http://proxy.lan', { kind: 'http', host: 'proxy.lan', port: 80, credentials: null }],
    ['http://proxy.lan:80/', { kind: 'http', host: 'proxy.lan', port: 80, credentials: null }],
    ['HTTPS://proxy.lan', { kind: 'https', host: 'proxy.lan', port: 443, credentials: null }],
    ['socks5://[fd00::1]:9', { kind: 'socks5', host: 'fd00::1', port: 9, credentials: null }],
    ['socks5h://proxy.lan', { kind: 'socks5', host: 'proxy.lan', port: 1080, credentials: null }],
    ['u:1234@proxy.lan', { kind: 'http', host: 'proxy.lan', port: 80, credentials: { user: 'u', password: '1234' } }],
    ['http://u%40x:p%3Aq@p:1', { kind: 'http', host: 'p', port: 1, credentials: { user: 'u@x', password: 'p:q' } }],
    ['http://u@p:1', { kind: 'http', host: 'p', port: 1, credentials: { user: 'u', password: '' } }],
  ])('parses %s', (text, proxy) => {
    expect(parseProxy(text)).toEqual(proxy);
  });

  it.each(['socks4://p:1', 'ftp://p', 'http://', 'http://p:99999', 'http://p/path', 'http://p?x', '::1'])(
    'rejects %s',
    (text) => {
      expect(() => parseProxy(text)).toThrow();
    },
  );

  it('displayProxy omits the password', () => {
    expect(displayProxy(parseProxy('socks5://u:p@[::1]:1'))).toBe('socks5://[::1]:1');
  });
});

describe('parseNoProxy', () => {
  it.each([
    ['*', 'a.example.com', 443, true],
    ['', 'a.example.com', 443, false],
    ['example.com', 'example.com', 443, true],
    ['example.com', 'A.Example.com', 443, true],
    ['.example.com, other', 'a.example.com', 443, true],
    ['*.example.com', 'a.example.com', 443, true],
    ['example.com', 'notexample.com', 443, false],
    ['example.com:443', 'a.example.com', 443, true],
    ['example.com:443', 'a.example.com', 4443, false],
    ['10.0.0.0/8', '10.1.2.3', 443, true],
    ['10.0.0.0/8', '11.1.2.3', 443, false],
    ['10.0.0.0/8', 'a.example.com', 443, false],
    ['192.168.1.1', '192.168.1.1', 443, true],
    ['192.168.1.1:80', '192.168.1.1', 443, false],
    ['fd00::/8', 'fd00::1', 443, true],
    ['::1', '::1', 443, true],
    ['[::1]:443', '::1', 443, true],
    ['[::1]:443', '::1', 80, false],
    ['::1', '127.0.0.1', 443, false],
  ])('%j, destination %s port %i: bypass %s', (text, host, port, exempt) => {
    expect(parseNoProxy(text)({ host, port })).toBe(exempt);
  });

  it.each(['10.0.0.0/33', 'not a host', 'a/b', '10.0.0.0/x'])('names the invalid entry %s', (text) => {
    expect(() => parseNoProxy(`localhost,${text}`)).toThrow(text);
  });
});

it('proxyFor prefers the proxy of the scheme to ALL_PROXY', () => {
  const [https, http, all] = ['http://a:1', 'http://b:2', 'socks5://c:3'].map(parseProxy);
  if (!https || !http || !all) throw new Error('unreachable');
  const to = { host: 'x.example', port: 443 };
  const rules = { https, http, all, exempt: parseNoProxy('free.example') };
  expect(proxyFor(rules, 'https', to)).toBe(https);
  expect(proxyFor(rules, 'http', to)).toBe(http);
  expect(proxyFor({ ...rules, https: null }, 'https', to)).toBe(all);
  expect(proxyFor({ ...rules, https: null, all: null }, 'https', to)).toBeNull();
  expect(proxyFor(rules, 'https', { ...to, host: 'free.example' })).toBeNull();
  expect(proxyFor(NO_PROXIES, 'https', to)).toBeNull();
});
