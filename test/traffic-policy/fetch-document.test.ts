import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import { cidrList } from '../../src/lib/network/ip-address.ts';
import { fetchDocument } from '../../src/traffic-policy/fetch-document.ts';
import {
  type OutboundRequest,
  publicAddress,
  publicRequest,
  Unreachable,
} from '../../src/traffic-policy/public-request.ts';
import { issueCertificate } from '../support/certificates.ts';
import { COSTLY_KEYS, spkiOf } from '../support/costly-keys.ts';
import { freePort, serving, webPort } from '../support/loopback.ts';
import { NO_NETWORKS } from '../support/network.ts';
import { unless } from '../support/requirements.ts';
import { respondWith, runRequest } from './actions/run-action.ts';
import { RecordedTime } from './recorded-time.ts';

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

describe('public addresses of this machine', unless(NO_NETWORKS), () => {
  const LAST = process.pid % 250;

  it.each([
    [
      `203.0.113.${LAST}`,
      [`[::ffff:203.0.113.${LAST}]`, `[64:ff9b::203.0.113.${LAST}]`, `[2002:cb00:71${hex(LAST)}::1]`],
    ],
    [`2001:db8:${hex(LAST)}::1`, [`[2001:db8:${hex(LAST)}:0::0:1]`]],
  ])('%s is in the network of the gateway from when an interface gets it', async (address, spellings) => {
    const change = (verb: string) =>
      execFileSync('ip', ['address', verb, `${address}/${address.includes(':') ? 128 : 32}`, 'dev', 'lo']);
    const isOpen = () =>
      publicAddress(address).then(
        () => true,
        () => false,
      );
    expect(await isOpen()).toBe(true);
    change('add');
    onTestFinished(() => void change('del'));
    await expect.poll(isOpen, { timeout: 5_000 }).toBe(false);
    const host = address.includes(':') ? `[${address}]` : address;
    let reached = 0;
    const server = createServer((_req, res) => {
      reached++;
      res.end();
    });
    server.listen(0, address);
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const ask = (at: string, ...allowed: string[]) => {
      const outbound = {
        method: 'GET',
        url: new URL(`http://${at}:${port}/`),
        headers: [],
        body: null,
        maxBytes: 1000,
      };
      return publicRequest(outbound, AbortSignal.timeout(10_000), cidrList(allowed));
    };
    for (const spelling of [host, ...spellings]) {
      await expect(ask(spelling)).rejects.toThrow('not on the public internet');
    }
    if (address.includes(':')) await expect(publicAddress(`${address}%lo`)).rejects.toThrow('not on the public');
    expect(reached).toBe(0);
    expect((await ask(host, address)).status).toBe(200);
  });
});

function hex(number: number): string {
  return number.toString(16).padStart(2, '0');
}

it.each(COSTLY_KEYS)(
  'a server whose certificates have %s is not asked, and who asks pays for the look',
  async (_name, make) => {
    const leaf = await issueCertificate({ subject: 'CN=localhost', names: ['127.0.0.1'] });
    const costly = await issueCertificate({ subject: 'CN=CA', publicKey: spkiOf(make()) });
    const server = createTlsServer({
      cert: `${leaf.certificatePem}\n${costly.certificatePem}`,
      key: leaf.privateKeyPem,
    }).on('tlsClientError', () => {});
    const url = `https://127.0.0.1:${await serving(server)}/jwks`;
    const charges: number[] = [];
    const parties = { owner: 'cr_1', charge: (ms: number) => charges.push(ms) };
    await expect(fetchDocument(url, 1000, cidrList(['127.0.0.1']), parties)).rejects.toThrow('certificate 2 refused');
    expect(charges.length).toBeGreaterThan(0);
  },
);

describe('a server that http-request asks', () => {
  /** What the action does with what a server sends, and what that is charged for. */
  async function askedBy(start: string | Buffer, shown: string, endless = '') {
    const port = await serving(
      createTcpServer((socket) => {
        const repeat = () => {
          while (socket.writable && socket.write(endless.repeat(500)));
          if (socket.writable) socket.once('drain', repeat);
        };
        socket.on('error', () => {});
        socket.once('data', () => {
          socket.write(start);
          if (endless !== '') repeat();
        });
      }),
    );
    const time = new RecordedTime();
    const allowed = cidrList(['127.0.0.0/8']);
    const parties = { owner: 'cr_1', charge: (ms: number) => time.spend(ms) };
    const actions = [
      { type: 'http-request', config: { url: `http://127.0.0.1:${port}/`, timeout: '30s' } },
      respondWith(`actions.ngrok.http_request.${shown}`),
    ];
    const text = JSON.stringify({ on_http_request: actions.map((action) => ({ actions: [action] })) });
    const ports = {
      request: (outbound: OutboundRequest, signal: AbortSignal) =>
        publicRequest({ ...outbound, parties }, signal, allowed),
      processorTime: time,
    };
    const { outcome } = await runRequest(text, {}, ports);
    return { said: outcome?.kind === 'answer' ? outcome.body.toString() : outcome, time };
  }

  it('may send a few interim responses', async () => {
    const start = `${'HTTP/1.1 103 a\r\n\r\n'.repeat(3)}HTTP/1.1 200 a\r\ncontent-length: 2\r\n\r\nhi`;
    expect((await askedBy(start, 'res.body')).said).toBe('hi');
  });

  it.each([
    ['interim responses', '', 'HTTP/1.1 103 a\r\nlink: <a>\r\n\r\n', 'interim responses'],
    ['tiny chunks', 'HTTP/1.1 200 a\r\ntransfer-encoding: chunked\r\n\r\n', '1\r\na\r\n', 'besides its content'],
  ])('fails with endless %s, which the owner pays for', async (_, start, endless, reason) => {
    const { said, time } = await askedBy(start, 'error.message', endless);
    expect(said).toMatch(reason);
    // A handshake is charged, although there was none.
    expect(time.spentMs).toBeGreaterThan(2);
  });

  it('makes the owner pay for what is decompressed', async () => {
    const answer = (body: Buffer) =>
      Buffer.concat([
        Buffer.from(`HTTP/1.1 200 a\r\ncontent-encoding: gzip\r\ncontent-length: ${body.length}\r\n\r\n`),
        body,
      ]);
    const size = (body: string) => askedBy(answer(gzipSync(body)), 'res.body.size()');
    const [short, long] = [await size('hi'), await size('x'.repeat(200_000))];
    expect([short.said, long.said]).toEqual(['2', '200000']);
    expect(long.time.spentMs).toBeGreaterThan(short.time.spentMs + 1);
  });
});

it('a port of a TLS server that refuses connections is out of reach, as one without TLS', async () => {
  const request = { method: 'GET', headers: [], body: null, maxBytes: 1000 };
  for (const scheme of ['http', 'https']) {
    const url = new URL(`${scheme}://127.0.0.1:${await freePort()}/`);
    const asked = publicRequest({ ...request, url }, AbortSignal.timeout(10_000), cidrList(['127.0.0.1']));
    await expect(asked).rejects.toThrow(Unreachable);
  }
});
