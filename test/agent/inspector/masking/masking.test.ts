import { describe, expect, it } from 'vitest';
import { maskHeaders, maskUrl } from '../../../../src/agent/inspector/masking/mask-headers.ts';
import { maskText } from '../../../../src/agent/inspector/masking/mask-text.ts';

const SECRET = 's3cr3t-value';

describe('headers', () => {
  it.each([
    ['Authorization', `Bearer ${SECRET}`, 'Bearer [masked]'],
    ['authorization', `Basic ${SECRET}`, 'Basic [masked]'],
    ['Authorization', SECRET, '[masked]'],
    ['Proxy-Authorization', `Digest username="a", response="${SECRET}"`, 'Digest [masked]'],
    ['Cookie', `sid=${SECRET}; theme=dark`, 'sid=[masked]; theme=[masked]'],
    ['Set-Cookie', `sid=${SECRET}; Path=/; HttpOnly`, 'sid=[masked]; Path=/; HttpOnly'],
    ['X-Api-Key', SECRET, '[masked]'],
    ['X-Auth-Token', SECRET, '[masked]'],
    ['x-amz-security-token', SECRET, '[masked]'],
    ['X-CSRF-Token', SECRET, '[masked]'],
    [
      'Referer',
      `https://a.example/x?access_token=${SECRET}&page=2`,
      'https://a.example/x?access_token=[masked]&page=2',
    ],
    ['Location', `/cb#id_token=${SECRET}`, '/cb#id_token=[masked]'],
    ['X-Url', `https://jo:${SECRET}@a.example/`, 'https://jo:[masked]@a.example/'],
  ])('%s: %s', (name, value, masked) => {
    expect(maskHeaders([{ name, value }])).toEqual([{ name, value: masked }]);
  });

  it.each(['Content-Type', 'Host', 'Sec-WebSocket-Key', 'WWW-Authenticate', 'X-Request-Id', 'Accept'])(
    '%s stays',
    (name) => {
      expect(maskHeaders([{ name, value: 'a; b=c' }])).toEqual([{ name, value: 'a; b=c' }]);
    },
  );
});

it.each([
  [`/a?token=${SECRET}`, '/a?token=[masked]'],
  [`/a?x=1&API_KEY=${SECRET}&y=2`, '/a?x=1&API_KEY=[masked]&y=2'],
  [`/a?%74oken=${SECRET}`, '/a?%74oken=[masked]'],
  [`/cb?code=${SECRET}&state=ok`, '/cb?code=[masked]&state=ok'],
  [`/s3?X-Amz-Signature=${SECRET}`, '/s3?X-Amz-Signature=[masked]'],
  ['/a?page=2&sort=name&token=', '/a?page=2&sort=name&token='],
])('the path %s is masked', (path, masked) => {
  expect(maskUrl(path)).toBe(masked);
});

describe('bodies', () => {
  it.each([
    [
      'application/json',
      `{"user": "jo", "password": "${SECRET}", "n": 1.50}`,
      '{"user": "jo", "password": "[masked]", "n": 1.50}',
    ],
    ['application/json', `{"newPassword":"a\\"${SECRET}","b":2}`, '{"newPassword":"[masked]","b":2}'],
    ['application/json', `{"p\\u0061ssword":"${SECRET}"}`, '{"p\\u0061ssword":"[masked]"}'],
    [
      'application/json',
      `{"client_secret": {"a": ["${SECRET}", "}"]}, "b": 1}`,
      '{"client_secret": "[masked]", "b": 1}',
    ],
    ['application/json', '{"pin": 1234, "spin": 1}', '{"pin": "[masked]", "spin": 1}'],
    ['application/json', `{"password":"${SECRET}`, '{"password":"[masked]"'],
    ['application/json', `{"url":"https://a/?token=${SECRET}"}`, '{"url":"https://a/?token=[masked]"}'],
    [null, `[{"access_token":"${SECRET}"}]`, '[{"access_token":"[masked]"}]'],
    ['application/x-www-form-urlencoded', `user=jo&pass%77ord=${SECRET}&x=`, 'user=jo&pass%77ord=[masked]&x='],
    [
      'multipart/form-data; boundary=x',
      `--x\r\nContent-Disposition: form-data; name="password"\r\n\r\n${SECRET}\r\n--x--`,
      '--x\r\nContent-Disposition: form-data; name="password"\r\n\r\n[masked]\r\n--x--',
    ],
    ['text/plain', `see https://a/?token=${SECRET} now`, 'see https://a/?token=[masked] now'],
  ])('%s %s', (type, text, masked) => {
    expect(maskText(text, type)).toBe(masked);
  });

  it('without secrets stay as they were sent', () => {
    const text = '{ "a" : [1, 2.0, "x?y", {"b": null}],\n "c":"\\u00e4" }';
    expect(maskText(text, 'application/json')).toBe(text);
  });

  it('that are hostile take no more time than their size', () => {
    const size = 300_000;
    for (const [type, text] of [
      ['multipart/form-data', 'name="a"\n'.repeat(size / 9)],
      ['application/json', '{"password":['.repeat(size / 13)],
      ['text/plain', '?a'.repeat(size / 2)],
      ['text/plain', '//a:b'.repeat(size / 5)],
      ['application/x-www-form-urlencoded', '&=%'.repeat(size / 3)],
    ] as const) {
      const began = performance.now();
      maskText(text, type);
      expect([type, text.slice(0, 10), performance.now() - began < 5_000]).toEqual([type, text.slice(0, 10), true]);
    }
  });
});
