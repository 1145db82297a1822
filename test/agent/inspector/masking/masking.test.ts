import { describe, expect, it } from 'vitest';
import { maskText } from '../../../../src/agent/inspector/masking/mask-text.ts';
import { maskHeaders } from '../../../../src/agent/inspector/shown-exchange.ts';
import { maskUrl } from '../../../../src/lib/masking/mask-url.ts';
import { isSecretField, isSecretHeader, isSecretMember } from '../../../../src/lib/masking/secret-names.ts';
import { processorNow } from '../../../../src/lib/time/clock.ts';

const SECRET = 's3cr3t-value';

describe('names', () => {
  it.each(
    `password Password newPassword password1 password_2 db.password passwordConfirmation userpassword secret client_secret
    secretKey authtoken authToken access_token accessToken csrfmiddlewaretoken id_tokens apiKey api-key apikey PRIVATE_KEY
    signingKey authKey credentials psk wifi_psk jwt Authorization pin otp session_id`.split(/\s+/),
  )('%s stands for a secret', (name) => {
    expect([isSecretMember(name), isSecretField(name)]).toEqual([true, true]);
  });

  it.each(
    'spin shipping_pin compass bypass tokenizer token_type key monkey sortKey author code session status'.split(' '),
  )('%s stands for none', (name) => {
    expect(isSecretMember(name)).toBe(false);
  });

  it.each(
    'X-Authorization X-Auth-Key X-Auth Authorization2 X-Hub-Signature-256 Ocp-Apim-Subscription-Key X_Api_Key X-Session-Id'.split(
      ' ',
    ),
  )('the header %s is a secret', (name) => {
    expect(isSecretHeader(name)).toBe(true);
  });
});

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
  [`/ngrok/share/${SECRET}?x=1`, '/ngrok/share/[masked]?x=1'],
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
    [
      'multipart/form-data; boundary=x',
      `--x\r\nContent-Disposition: form-data; name=secretKey\r\n\r\n${SECRET}\r\n\r\n${SECRET}\r\n--x\r\n\r\nok\r\n--x--\r\n`,
      '--x\r\nContent-Disposition: form-data; name=secretKey\r\n\r\n[masked]\r\n--x\r\n\r\nok\r\n--x--\r\n',
    ],
    [
      'multipart/form-data',
      `--x\nContent-Disposition: form-data;\n name*=UTF-8''pass%77ord\n\n${SECRET}\n${SECRET}`,
      "--x\nContent-Disposition: form-data;\n name*=UTF-8''pass%77ord\n\n[masked]",
    ],
    [
      'multipart/mixed; boundary="x y"',
      `--x y\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\npassword=${SECRET}\r\n--x y--`,
      '--x y\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\npassword=[masked]\r\n--x y--',
    ],
    [
      'text/event-stream',
      `event: login\ndata: {"password": "${SECRET}"}\n\n: ?token=${SECRET}\ndata:{"token": [\r\ndata: "${SECRET}"],\r\ndata:"b": 1}\r\n\r\n`,
      'event: login\ndata: {"password": "[masked]"}\n\n: ?token=[masked]\ndata:{"token": "[masked]",\r\ndata:"b": 1}\r\n\r\n',
    ],
    ['text/event-stream', 'retry: 1\r\rdata: a\rdata:  b\rid', 'retry: 1\r\rdata: a\rdata:  b\rid'],
    // Frames of Socket.IO, alone and as one body.
    [null, `42["login",{"password":"${SECRET}","n":1}]`, '42["login",{"password":"[masked]","n":1}]'],
    [null, `40/admin,{"token":"${SECRET}"}`, '40/admin,{"token":"[masked]"}'],
    [
      'text/plain; charset=UTF-8',
      `40{"authtoken":"${SECRET}"}\u001e42["a?b"]`,
      '40{"authtoken":"[masked]"}\u001e42["a?b"]',
    ],
    ['text/plain', `a 5" disk: {"password":"${SECRET}"}`, 'a 5" disk: {"password":"[masked]"}'],
    ['text/plain', `see https://a/?token=${SECRET} now`, 'see https://a/?token=[masked] now'],
  ])('%s %s', (type, text, masked) => {
    expect(maskText(text, type)).toBe(masked);
  });

  it('without secrets stay as they were sent', () => {
    const text = '{ "a" : [1, 2.0, "x?y", {"b": null}],\n "c":"\\u00e4" }';
    expect(maskText(text, 'application/json')).toBe(text);
  });

  it('that are hostile take no more time than their size', () => {
    const size = 1024 * 1024;
    const head = '--x\r\nContent-Disposition: form-data; ';
    for (const [type, text] of [
      ['multipart/form-data', 'name="a"\n'.repeat(size / 9)],
      ['multipart/form-data; boundary=x', `${head}${'name="a"'.repeat(size / 8)}`],
      ['multipart/form-data; boundary=x', `${head}${';name="\\'.repeat(size / 8)}\r\n\r\na`],
      ['multipart/form-data; boundary=x', `${head}name=a\r\n\r\n`.repeat(size / 48)],
      ['multipart/form-data; boundary=x', '--x\n\n'.repeat(size / 5)],
      [`multipart/form-data; boundary=${'-'.repeat(60_000)}`, '-'.repeat(size)],
      [`multipart/form-data; boundary=${'a'.repeat(60_000)}`, `--${'a'.repeat(59_000)}\n`.repeat(size / 59_000)],
      ['text/event-stream', 'data\n'.repeat(size / 5)],
      ['text/event-stream', 'data:\n'.repeat(size / 6)],
      ['text/event-stream', 'data:[\n\n'.repeat(size / 8)],
      ['text/event-stream', 'data:"a":\n'.repeat(size / 10)],
      ['application/json', '"a" '.repeat(size / 4)],
      ['application/json', `"${'\\"'.repeat(size / 2)}`],
      ['application/json', `"${'a-'.repeat(99)}":1,`.repeat(size / 204)],
      ['application/json', `"${'1'.repeat(199)}":1,`.repeat(size / 204)],
      ['application/json', `"a"${' '.repeat(size)}`],
      ['application/json', '{"password":['.repeat(size / 13)],
      ['text/plain', '?a'.repeat(size / 2)],
      ['text/plain', '//a:b'.repeat(size / 5)],
      ['text/plain', `?${'a'.repeat(200)}`.repeat(size / 201)],
      ['text/plain', `//a${':'.repeat(size)}`],
      ['application/x-www-form-urlencoded', '&=%'.repeat(size / 3)],
    ] as const) {
      const began = processorNow();
      maskText(text, type);
      expect([type, text.slice(0, 10), processorNow() - began < 5_000]).toEqual([type, text.slice(0, 10), true]);
    }
  });
});
