import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { collect, TestEdge } from '../../../support/edge.ts';
import { ask } from '../../../support/http-request.ts';
import { answerOn, openHttp2 } from '../../../support/http2-client.ts';

const SESSION = '__Host-ngrok-sign-in-1a2b3c4d=sealed';
const SHARED = '__Secure-ngrok-sign-in-1a2b3c4d.1=sealed';
const LINK = '__Host-ngrok-share-2abc=sealed';
const OWN = [SESSION, SHARED, LINK];

let edge: TestEdge;
/** Headers of the last request that has reached an upstream. */
let seen: string[] = [];
/** What the upstream's response sets. */
let sets: Record<string, string | string[]> = {};

beforeAll(async () => {
  // Its domain is the one of the endpoints.
  edge = await TestEdge.start({ services: new Map([['api.localhost', () => {}]]) });
  const answer = async (req: IncomingMessage, res: ServerResponse) => {
    await collect(req);
    seen = req.rawHeaders;
    for (const [name, value] of Object.entries(sets)) res.setHeader(name, value);
    res.end('ok');
  };
  await edge.serve('plain.localhost', answer);
  await edge.serve('secure.localhost', answer, { protocol: 'https' });
  await edge.serve('cam.customer.test', answer);
});
afterAll(() => edge.close());

const cookiesSeen = () => seen.filter((_, at) => seen[at - 1]?.toLowerCase() === 'cookie' && at % 2 === 1);

describe('cookies of sign-ins and share links do not reach an upstream whose policy has no such action', () => {
  it.each([
    ['in one field', [`a=1; ${OWN.join('; ')}; b=2`], ['a=1; b=2']],
    ['alone', [OWN.join('; ')], []],
    ['in fields of their own', ['a=1', ...OWN, 'b=2'], ['a=1', 'b=2']],
    ['with unusual spaces', [`${SESSION};a=1;\t${LINK} ;b=2`], ['a=1; b=2']],
    [
      'beside names like theirs',
      ['ngrok-share-1=1; x__Host-ngrok-share-1=1'],
      ['ngrok-share-1=1; x__Host-ngrok-share-1=1'],
    ],
  ])('over HTTP/1, %s', async (_how, fields, expected) => {
    const lines = fields.map((field) => `Cookie: ${field}\r\n`).join('');
    await edge.raw(`GET / HTTP/1.1\r\nHost: plain.localhost\r\nConnection: close\r\n${lines}\r\n`);
    expect(cookiesSeen()).toEqual(expected);
  });

  it('over HTTP/2, where browsers send each in a field of its own', async () => {
    const session = await openHttp2(edge, 'secure.localhost');
    onTestFinished(() => session.destroy());
    await answerOn(session.request({ ':path': '/', cookie: ['a=1', ...OWN, 'b=2'] }));
    expect(cookiesSeen()).toEqual(['a=1; b=2']);
  });

  it('with a WebSocket', async () => {
    const { host } = await edge.serveRaw('socket.localhost', echoingHeads());
    const socket = edge.connect();
    onTestFinished(() => void socket.destroy());
    const upgrade = 'Connection: Upgrade\r\nUpgrade: websocket\r\n';
    socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n${upgrade}Cookie: ${SESSION}; a=1\r\n\r\n`);
    const [head] = await once(socket, 'data');
    expect(String(head)).toContain('X-Cookie: a=1\r\n');
    expect(String(head)).not.toContain('Set-Cookie');
  });

  it('nor do its policies read them', async () => {
    const body = `\${'cookie' in req.headers} \${size(req.cookies)} \${'cookie' in vars.all}`;
    const { host } = await edge.serve('policy.localhost', () => {}, {
      policy: {
        on_http_request: [
          {
            actions: [
              { type: 'set-vars', config: { vars: [{ all: `\${req.headers}` }] } },
              { type: 'custom-response', config: { body } },
            ],
          },
        ],
      },
    });
    const answer = await ask(edge.httpPort, host, { headers: { cookie: OWN.join('; ') } });
    expect(answer).toMatchObject({ status: 200, body: 'false 0 false' });
  });
});

/** Agrees to every upgrade, and tells in a header which cookies it has got. */
function echoingHeads() {
  return createServer((socket) => {
    socket
      .on('error', () => {})
      .once('data', (head) => {
        const [, cookie] = /\r\nCookie: ([^\r]*)/i.exec(String(head)) ?? [];
        const line = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n';
        socket.write(`${line}X-Cookie: ${cookie}\r\nSet-Cookie: ${SESSION}\r\n\r\n`);
      });
  });
}

const COOKIES: [what: string, line: string, arrives: string | undefined][] = [
  ['a cookie of its own', 'a=1; Path=/; Secure', 'a=1; Path=/; Secure'],
  ['one for its own host and below', 'a=1; Domain=plain.localhost', 'a=1; Domain=plain.localhost'],
  ["one for the gateway's domain", 'a=1; Domain=localhost; Path=/', 'a=1; Path=/'],
  ['one with a dot in front', 'a=1;domain = .LocalHost;Path=/', 'a=1;Path=/'],
  ['one for a name of the gateway', 'a=1; Domain=api.localhost', 'a=1'],
  ['one that names two domains', 'a=1; Domain=localhost; Domain=plain.localhost', 'a=1; Domain=plain.localhost'],
  ['one with other space around the attribute', 'a=1; \u00a0Domain=localhost', 'a=1'],
  ['one that browsers decode', 'a=1; Domain=%6cocalhost', 'a=1'],
  ['one of a sign-in', `${SESSION}; Path=/; Secure`, undefined],
  ['the deletion of one', '__Host-ngrok-share-2abc=; Path=/; Secure; Max-Age=0', undefined],
  ['one of a sign-in for a domain', `${SHARED}; Domain=localhost; Secure`, undefined],
  ['one without a name that is sent like one with', `=${SESSION}; Path=/`, undefined],
  ['one with other space around it', `\u00a0${SESSION}; Path=/`, undefined],
  ['a value that looks like an attribute', 'a=Domain=localhost; Path=/', 'a=Domain=localhost; Path=/'],
];

describe('what responses set and delete', () => {
  it.each(COOKIES)('%s: %s arrives as %s', async (_what, line, arrives) => {
    sets = { 'set-cookie': [line, 'last=1'] };
    onTestFinished(() => {
      sets = {};
    });
    const kept = [arrives, 'last=1'].filter((each) => each !== undefined);
    expect((await ask(edge.httpPort, 'plain.localhost')).headers['set-cookie']).toEqual(kept);
  });

  it('is the same for policies', async () => {
    const headers = { 'set-cookie': `${SESSION}; Path=/; Secure` };
    const actions = [{ type: 'add-headers', config: { headers: { 'Set-Cookie': 'a=1; Domain=localhost; Path=/' } } }];
    const { host } = await edge.serve('sets.localhost', () => {}, {
      policy: {
        on_http_request: [{ actions: [{ type: 'custom-response', config: { status_code: 200, headers } }] }],
        on_http_response: [{ actions }],
      },
    });
    expect((await ask(edge.httpPort, host)).headers['set-cookie']).toEqual(['a=1; Path=/']);
  });

  it('is the same in early hints', async () => {
    const { host } = await edge.serve('hints.localhost', (_req, res) => {
      res.writeEarlyHints({ link: '</a.css>; rel=preload', 'set-cookie': `${SESSION}; Path=/` });
      res.end();
    });
    const text = await edge.raw(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    expect(text).toMatch(/^HTTP\/1\.1 103 /);
    expect(text).not.toContain('ngrok-sign-in');
  });

  it.each([
    ['"cookies"', undefined],
    ['"cache", "cookies" , "storage"', '"cache", "storage"'],
    ['"*"', '"cache", "storage", "executionContexts"'],
    ['"cache"', '"cache"'],
  ])('Clear-Site-Data: %s arrives as %s, as it would delete the cookies of neighbours', async (value, arrives) => {
    sets = { 'clear-site-data': value };
    onTestFinished(() => {
      sets = {};
    });
    expect((await ask(edge.httpPort, 'plain.localhost')).headers['clear-site-data']).toBe(arrives);
    expect((await ask(edge.httpPort, 'cam.customer.test')).headers['clear-site-data']).toBe(value);
  });

  it('may be for any domain at a host that shares none with the gateway', async () => {
    sets = { 'set-cookie': 'a=1; Domain=customer.test' };
    onTestFinished(() => {
      sets = {};
    });
    expect((await ask(edge.httpPort, 'cam.customer.test')).headers['set-cookie']).toEqual([
      'a=1; Domain=customer.test',
    ]);
  });
});
