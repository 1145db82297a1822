import { describe, expect, it } from 'vitest';
import { RpcError } from '../../../src/agent-protocol/rpc.ts';
import { checkEndpointName, randomEndpointName } from '../../../src/gateway/endpoints/endpoint-address.ts';

function codeOf(name: string): string {
  try {
    checkEndpointName(name);
    return 'accepted';
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    return error.code;
  }
}

describe('checkEndpointName', () => {
  it.each([
    ['device342.localhost', 'device342.localhost'],
    ['CAM.Site-1.LocalHost', 'cam.site-1.localhost'],
    ['a.b.c.d.localhost', 'a.b.c.d.localhost'],
    ['xn--mnchen-3ya.localhost', 'xn--mnchen-3ya.localhost'],
    [`${'a'.repeat(63)}.localhost`, `${'a'.repeat(63)}.localhost`],
    ['*.Site.localhost', '*.site.localhost'],
  ])('accepts %s', (wanted, name) => {
    expect(checkEndpointName(wanted)).toBe(name);
  });

  it.each([
    ['1.21 gigawatts', 'ERR_NGROK_326'],
    ['münchen.localhost', 'ERR_NGROK_326'],
    ['a..localhost', 'ERR_NGROK_327'],
    ['-a.localhost', 'ERR_NGROK_328'],
    ['.localhost', 'ERR_NGROK_328'],
    ['a.-b.localhost', 'ERR_NGROK_328'],
    ['a-.localhost', 'ERR_NGROK_329'],
    ['a.localhost.', 'ERR_NGROK_329'],
    ['a--b.localhost', 'ERR_NGROK_330'],
    ['xn--zzzzzz99999999.localhost', 'ERR_NGROK_347'],
    ['my_cam.localhost', 'ERR_NGROK_355'],
    [`${'a'.repeat(64)}.localhost`, 'ERR_NGROK_396'],
    [`${'a.'.repeat(130)}localhost`, 'ERR_NGROK_397'],
    ['*.', 'ERR_NGROK_327'],
    ['a.*.localhost', 'ERR_NGROK_326'],
    ['*a.localhost', 'ERR_NGROK_326'],
  ])('refuses %s with %s', (wanted, code) => {
    expect(codeOf(wanted)).toBe(code);
  });
});

describe('randomEndpointName', () => {
  it('generates valid and different names', () => {
    const names = Array.from({ length: 50 }, () => randomEndpointName('localhost'));
    for (const name of names) expect(checkEndpointName(name)).toBe(name);
    expect(new Set(names).size).toBeGreaterThan(45);
  });
});
