import { createServer } from 'node:http';
import { expect, it } from 'vitest';
import { cidrList } from '../../src/lib/network/ip-address.ts';
import { fetchDocument } from '../../src/traffic-policy/fetch-document.ts';
import { publicRequest } from '../../src/traffic-policy/public-request.ts';
import { serving, webPort } from '../support/loopback.ts';

it.each(['http://example.com/jwks', 'ftp://example.com/jwks'])(
  'fetchDocument rejects %s: it uses HTTPS only',
  async (url) => {
    await expect(fetchDocument(url, 1000)).rejects.toThrow('must start with https://');
  },
);

it.each([
  '127.0.0.1',
  '[::1]',
  '[::ffff:127.0.0.1]',
  '10.0.0.1',
  '169.254.169.254',
  '[fd00::1]',
  '[::127.0.0.1]',
  '[::ffff:0:127.0.0.1]',
  '[64:ff9b::7f00:1]',
  '[64:ff9b:1::a9fe:a9fe]',
  '[2001::1]',
  '[2002:7f00:1::1]',
  '[fec0::1]',
  '168.63.129.16',
  '2130706433',
  'localhost',
])('fetchDocument rejects %s, which can lead into the network of the gateway', async (host) => {
  let reached = false;
  const server = createServer(() => {
    reached = true;
  });
  const port = await serving(server);
  await expect(fetchDocument(`https://${host}:${port}/jwks`, 1000)).rejects.toThrow('not on the public internet');
  expect(reached).toBe(false);
});

it.each(['127.0.0.1', 'localhost'])(
  'policies reach %s when the operator allows its network, and no other one',
  async (host) => {
    const url = new URL(`http://${host}:${await webPort()}/`);
    const ask = (network: string) =>
      publicRequest(
        { method: 'GET', url, headers: [], body: null, maxBytes: 1000 },
        AbortSignal.timeout(10_000),
        cidrList([network]),
      );
    expect((await ask('127.0.0.1')).status).toBe(200);
    await expect(ask('10.0.0.0/8')).rejects.toThrow('not on the public internet');
  },
);
