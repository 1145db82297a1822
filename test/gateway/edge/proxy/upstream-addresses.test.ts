import { describe, expect, it } from 'vitest';
import { leadToEndpoint, nameUpstream } from '../../../../src/gateway/edge/proxy/upstream-addresses.ts';

const PUBLIC = 'cam.example.com';
const LAN = 'http://192.168.1.20:80';

describe('a response header', () => {
  const changed = (name: string, value: string, forwardsTo = LAN, sentHost = PUBLIC, clientHost = PUBLIC) => {
    const headers = ['X-A', 'http://192.168.1.20/', name, value];
    leadToEndpoint(headers, () => ({ forwardsTo, sentHost, clientHost, clientScheme: 'https' }));
    expect(headers.slice(0, 2)).toEqual(['X-A', 'http://192.168.1.20/']);
    return headers[3];
  };

  it.each([
    ['Location', 'http://192.168.1.20/login?a=b#c', '/login?a=b#c'],
    ['location', 'HTTP://192.168.1.20:80', '/'],
    ['Location', '//192.168.1.20/login', '/login'],
    ['Location', 'http://192.168.1.20?a', '/?a'],
    ['Content-Location', 'http://192.168.1.20/a', '/a'],
    ['Refresh', '0; url=http://192.168.1.20/a', '0; url=/a'],
    ['Refresh', "5;URL='http://192.168.1.20/a'", "5;URL='/a'"],
    // The name that it was asked by, with the port that it listens on.
    ['Location', `http://${PUBLIC}/dir/`, '/dir/'],
  ])('%s: %s leads to the endpoint', (name, value, path) => {
    expect(changed(name, value)).toBe(path);
  });

  it.each([
    ['http://host:8081/dir/', 'localhost:8081', 'host:8443', '/dir/'],
    ['http://127.0.0.1:8081/a', 'localhost:8081', PUBLIC, '/a'],
    ['http://localhost:8081/a', 'http://127.0.0.1:8081', PUBLIC, '/a'],
    ['https://[::1]:8443/a', 'https://[::1]:8443', PUBLIC, '/a'],
    ['https://cam.lan/a', 'https://cam.lan', PUBLIC, '/a'],
  ])('Location: %s of %s leads to the endpoint', (value, forwardsTo, clientHost, path) => {
    expect(changed('Location', value, forwardsTo, clientHost, clientHost)).toBe(path);
  });

  it.each([
    ['Location', '/login'],
    ['Location', 'https://login.example.org/?back=http://192.168.1.20/'],
    ['Location', 'http://192.168.1.200/'],
    ['Location', 'http://192.168.1.20:8080/other-service'],
    ['Location', 'http://192.168.1.20@evil.example/'],
    ['Location', `https://${PUBLIC}/a`],
    ['Location', 'ftp://192.168.1.20/'],
    ['Refresh', '30'],
    ['Set-Cookie', 'a=1; Domain=192.168.1.20'],
  ])('%s: %s stays as it is', (name, value) => {
    expect(changed(name, value)).toBe(value);
  });

  it.each([
    ['Location', 'http://cam.lan/a', '/a'],
    ['Location', 'https://cam.lan:8443/a', 'https://cam.lan:8443/a'],
    ['Set-Cookie', 'a=1; Path=/; Domain=.cam.lan; HttpOnly', `a=1; Path=/; Domain=${PUBLIC}; HttpOnly`],
    ['Set-Cookie', 'a=1; domain=lan', `a=1; domain=${PUBLIC}`],
    ['Set-Cookie', 'a=1; Domain=example.org', 'a=1; Domain=example.org'],
    ['Set-Cookie', 'a=1', 'a=1'],
  ])('%s: %s is the endpoint’s where the upstream got another Host', (name, value, expected) => {
    expect(changed(name, value, 'localhost:8001', 'cam.lan', `${PUBLIC}:8443`)).toBe(expected);
  });
});

it.each([
  ['rewrite', LAN, '192.168.1.20:80', 'http://192.168.1.20:80'],
  ['rewrite', 'https://cam.lan', 'cam.lan', 'https://cam.lan'],
  ['cam.lan', 'localhost:8001', 'cam.lan', 'http://cam.lan'],
])('host_header %s for %s names the upstream in the headers of a request', (name, forwardsTo, host, origin) => {
  const site = `https://${PUBLIC}:8443`;
  const others = ['X-Forwarded-Host', `${PUBLIC}:8443`, 'Origin', `${site}0`, 'Referer', 'https://other.example/'];
  const headers = [
    'host',
    `${PUBLIC}:8443`,
    'Origin',
    site,
    'Referer',
    `${site}/a?b`,
    'Destination',
    `${site}/moved`,
    ...others,
  ];
  nameUpstream(headers, name, forwardsTo);
  expect(headers).toEqual([
    ...['host', host, 'Origin', origin, 'Referer', `${origin}/a?b`, 'Destination', `${origin}/moved`],
    ...others,
  ]);
});
