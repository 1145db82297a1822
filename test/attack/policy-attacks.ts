import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingHttpHeaders } from 'node:http';
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2';
import { createServer, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { createServer as createTlsServer } from 'node:tls';
import { gzipSync } from 'node:zlib';
import { type Attack, held, type Life, openTls } from './attack.ts';
import { ANSWER, action, askAgain, getOf, HostileEndpoint, lazyServer, onRequest, postOf } from './hostile-endpoint.ts';
import { begunBy, COSTLY, callbackPath, MADE_UP, NAVIGATION, SHARED } from './shared-tenant.ts';

/** Answers without a final one (RFC 9110, section 15.2), as fast as they are taken. */
function answersWithoutEnd(socket: Socket): void {
  const many = Buffer.from('HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n'.repeat(1000));
  const send = () => {
    while (!socket.destroyed && socket.write(many));
  };
  socket.on('error', () => {}).on('drain', send);
  socket.once('data', send);
}

const hints = lazyServer(() => createServer(answersWithoutEnd));
const hintsByTls = lazyServer(({ serverPair }) =>
  createTlsServer(serverPair, answersWithoutEnd).on('tlsClientError', () => {}),
);

const hinted = new HostileEndpoint('hinted.localhost', {
  async options(target) {
    const config = { url: `http://127.0.0.1:${await hints(target)}/`, timeout: '30s' };
    return { TrafficPolicy: onRequest(action('http-request', config), ANSWER) };
  },
});

const hintedKeys = new HostileEndpoint('hinted-keys.localhost', {
  async options(target) {
    const port = await hintsByTls(target);
    const config = {
      issuer: { allow_list: [{ value: 'https://issuer.example.com' }] },
      http: { tokens: [{ type: 'jwt', method: 'header', name: 'Authorization' }] },
      // Each request asks for other keys.
      jws: {
        allowed_algorithms: ['RS256'],
        keys: { sources: { additional_jkus: [`https://127.0.0.1:${port}\${req.url.path}`] } },
      },
    };
    return { TrafficPolicy: onRequest(action('jwt-validation', config), ANSWER) };
  },
});

const UNSIGNED = `${['{"alg":"RS256"}', '{}'].map((part) => Buffer.from(part).toString('base64url')).join('.')}.x`;

/** 1 MiB, of which nothing is left when it is compressed. */
const COMPRESSED = gzipSync(Buffer.alloc(1_000_000, 'x'));
const searched = new HostileEndpoint('searched.localhost', {
  options: () => ({ TrafficPolicy: onRequest(action('request-body-find-replace', COSTLY), ANSWER) }),
});

/** Sets so many variables of two texts of 60,000 characters each, and waits for an upstream that does not answer. */
function variables(count: number): string {
  // Copies cost less than what an expression makes of nothing: a phase may take 20 ms.
  const half = 'x'.repeat(30_000);
  const vars = Array.from({ length: count }, (_, at) => ({ [`v${at}`]: [`\${vars.all}${at}`, `\${vars.all}x${at}`] }));
  return onRequest(
    action('set-vars', { vars: [{ half }] }),
    action('set-vars', { vars: [{ all: `\${vars.half}\${vars.half}` }] }),
    action('set-vars', { vars }),
  );
}

const TENANTS = [0, 1, 2, 3];
const [large, small] = [
  ['large', variables(36)],
  ['small', variables(1)],
].map(([size, policy]) =>
  TENANTS.map(
    (tenant) =>
      new HostileEndpoint(`${size}-${tenant}.localhost`, { tenant, options: () => ({ TrafficPolicy: policy }) }),
  ),
);

/** One endpoint of each tenant, by turns. */
const turns = (endpoints: readonly HostileEndpoint[] = []) => {
  let next = 0;
  return (): HostileEndpoint => endpoints[next++ % endpoints.length] as HostileEndpoint;
};

interface Streams {
  count: number;
  /** Milliseconds from the end of a request to the next: what is refused at once must not become a flood of requests. */
  pauseMs: number;
  path?: string;
  /** Made for each request. */
  body?: () => Buffer;
  headers?: Record<string, string>;
}

/** An HTTP/2 connection, and what resolves when it is closed. */
async function openHttp2(life: Life, host: string): Promise<{ session: ClientHttp2Session; end: Promise<void> }> {
  const socket = await openTls(life.target.httpsPort, host, life, 'h2');
  const session = connectHttp2(`https://${host}`, { createConnection: () => socket });
  session.on('error', () => {});
  socket.once('close', () => session.destroy());
  return { session, end: held(socket, { reads: false }) };
}

/** Keeps so many requests of one HTTP/2 connection open, until the connection is closed. */
async function keepOpen(
  life: Life,
  host: string,
  { count, pauseMs, path = '/', body, headers = {} }: Streams,
): Promise<void> {
  const { session, end } = await openHttp2(life, host);
  const one = async () => {
    while (!session.closed && !session.destroyed) {
      const stream = session.request({ ...headers, ':method': body ? 'POST' : 'GET', ':path': path });
      const ended = once(
        stream.on('error', () => {}),
        'close',
      );
      stream.resume().end(body?.());
      await ended;
      await wait(pauseMs * (0.5 + Math.random()));
    }
  };
  await Promise.all([end, ...Array.from({ length: count }, one)]);
}

const certificatesOfAmazon = new HostileEndpoint('webhooks.localhost', {
  options: () => ({ TrafficPolicy: onRequest(action('verify-webhook', { provider: 'sns' }), ANSWER) }),
});

/** A message of Amazon's service whose certificate nobody has asked for yet. */
function message(): Buffer {
  const fields = {
    ...{ Type: 'Notification', MessageId: 'x', TopicArn: 'x', Message: 'x', SignatureVersion: '1', Signature: 'x' },
    Timestamp: new Date().toISOString(),
    SigningCertURL: `https://sns.us-east-1.amazonaws.com/${randomBytes(8).toString('hex')}.pem`,
  };
  return Buffer.from(JSON.stringify(fields));
}

/** Policies of hostile tenants, and clients that work with them. */
export const POLICY_ATTACKS: Attack[] = [
  { name: 'tenant: http-request, answers 103 without end', width: 8, live: (life) => hinted.ask(life, 500) },
  {
    name: 'tenant: keys of tokens, answers 103 without end',
    width: 8,
    live: (life) =>
      hintedKeys.ask(life, 500, () =>
        getOf(hintedKeys.host, `/${randomBytes(4).toString('hex')}`, `Authorization: ${UNSIGNED}\r\n`),
      ),
  },
  {
    name: 'tenant: 1,000 small gzip bodies to find-replace',
    width: 10,
    async live(life) {
      await searched.online(life);
      await keepOpen(life, searched.host, {
        count: 100,
        pauseMs: 5000,
        body: () => COMPRESSED,
        headers: { 'content-encoding': 'gzip' },
      });
    },
  },
  ...(
    [
      ['large', 8, turns(large)],
      ['small', 20, turns(small)],
    ] as const
  ).map(([size, width, next]) => ({
    name: `tenants: ${size} variables, kept by a silent upstream`,
    width,
    async live(life: Life) {
      const endpoint = next();
      await endpoint.online(life);
      await keepOpen(life, endpoint.host, { count: 100, pauseMs: 5000 });
    },
  })),
  {
    name: 'tenant: webhooks of SNS, another certificate each',
    width: 6,
    async live(life) {
      await certificatesOfAmazon.online(life);
      await keepOpen(life, certificatesOfAmazon.host, { count: 60, pauseMs: 200, body: message });
    },
  },
];

const BODY = Buffer.alloc(1_048_000, 'x');

/** The head of what somebody is answered who opens a page. */
async function open(session: ClientHttp2Session, path: string, cookie = ''): Promise<IncomingHttpHeaders> {
  const stream = session.request({ ':path': path, ...NAVIGATION, ...(cookie !== '' && { cookie }) });
  const closed = new AbortController();
  stream.on('error', () => {}).once('close', () => closed.abort());
  const [headers] = (await once(stream, 'response', { signal: closed.signal })) as [IncomingHttpHeaders];
  stream.resume();
  return headers;
}

/** A session as the gateway seals them (RFC 7516, section 3.1), but for its key: that is seen only when it has been opened. */
function madeUpSession(): string {
  const header = { alg: 'dir', enc: 'A256GCM', kid: String(Math.floor(Date.now() / (30 * 86_400_000))) };
  const [initial, content, tag] = [12, 2400, 16].map((length) => randomBytes(length).toString('base64url'));
  return `${Buffer.from(JSON.stringify(header)).toString('base64url')}..${initial}.${content}.${tag}`;
}

/** What the name of the session's cookie begins with; those of attempts go on with a number. */
const SESSION = /^__Host-ngrok-sign-in-\w+/;

/** One client of endpoints of another tenant, at one address, that wants more of their policies than its share. */
export const SINGLE_CLIENT_ATTACKS: Attack[] = [
  {
    name: 'client: 48 requests at a time through http-request',
    width: 4,
    // The server needs nearly as long as http-request waits for it.
    live: (life) => keepOpen(life, SHARED.asking, { count: 12, pauseMs: 500, path: '/wait/2500' }),
  },
  {
    name: 'client: three bodies of 1 MiB a second to find-replace',
    width: 3,
    live: (life) => askAgain(life, SHARED.searching, 1000, () => postOf(SHARED.searching, BODY)),
  },
  ...[SHARED.signIn, SHARED.people].map((host) => ({
    name: `client: 840 made-up cookies a second to ${host}`,
    width: 12,
    async live(life: Life) {
      const { session } = await openHttp2(life, host);
      const { 'set-cookie': [attempt = ''] = [] } = await open(session, '/');
      session.destroy();
      const name = SESSION.exec(attempt)?.[0] ?? '';
      // Each one is opened, and then begins to sign in.
      await askAgain(life, host, 14, () =>
        getOf(host, '/', `Cookie: ${name}=1.${madeUpSession()}\r\nUser-Agent: ${randomBytes(8).toString('hex')}\r\n`),
      );
    },
  })),
  {
    name: 'client: 64 made-up codes of the provider a second',
    width: 4,
    async live(life) {
      const { session, end } = await openHttp2(life, SHARED.signIn);
      const one = async () => {
        const { state, cookie } = begunBy(await open(session, '/'));
        await open(session, callbackPath(MADE_UP + randomBytes(8).toString('hex'), state), cookie);
      };
      // It may be refused.
      const timer = setInterval(() => one().catch(() => {}), 1000 / 16);
      await end;
      clearInterval(timer);
    },
  },
];

/** Clients that ask an upstream which accepts, never answers and never closes, and leave. */
export const LEAVING_ATTACKS: Attack[] = [
  {
    name: 'clients that leave a hung upstream',
    width: 48,
    async live(life) {
      const socket = await openTls(life.target.httpsPort, SHARED.hung, life);
      socket.write(getOf(SHARED.hung));
      await wait(300);
      socket.destroy();
    },
  },
];
