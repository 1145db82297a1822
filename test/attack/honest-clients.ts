import type { IncomingHttpHeaders } from 'node:http';
import { type ClientHttp2Session, connect } from 'node:http2';
import { Agent, request } from 'node:https';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { buffer } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { quantile } from '../support/finding.ts';
import { ProtocolAgent } from '../support/protocol-agent.ts';
import { within } from '../support/until.ts';
import { begunBy, callbackPath, cookiesOf, NAVIGATION, SHARED } from './shared-tenant.ts';

/** Honest clients and agents that connect, in a process of their own. Argument: {@link Visit}, as JSON. Prints {@link Visited}. */
export interface Visit {
  httpsPort: number;
  sessionPort: number;
  authtoken: string;
  ca: string;
  hosts: string[];
  seconds: number;
  /** Writes each failure and slow answer to the standard error output as it comes. */
  trace: boolean;
}

export interface Visited {
  kinds: VisitsOfKind[];
  /** Milliseconds by which this process itself was late, 99th percentile. */
  lateP99: number;
}

export interface VisitsOfKind {
  kind: string;
  /** Whether they come from an address of attackers, whose share they have to do with. */
  besideAttackers: boolean;
  requests: number;
  /** How often, by reason. */
  failures: Record<string, number>;
  /** Milliseconds. */
  p50: number;
  p99: number;
  max: number;
}

/** A request without a complete answer by then has failed. */
const PATIENCE_MS = 10_000;
/** Answers that take longer are traced. */
const SLOW_MS = 1_000;

const { httpsPort, sessionPort, authtoken, ca, hosts, seconds, trace } = JSON.parse(process.argv[2] ?? '') as Visit;
const kept = new Agent({ keepAlive: true, maxSockets: 2 });
let count = 0;

/** Honest clients come from addresses of their own, one for each host. */
const addressFor = (host: string, localAddress = `127.0.4.${1 + hosts.indexOf(host)}`) => ({
  host: '127.0.0.1',
  port: httpsPort,
  localAddress,
});

interface Wanted {
  path: string;
  headers?: Record<string, string>;
  body?: Buffer;
  /** 200 by default. */
  status?: number;
  expected: (answer: Buffer) => boolean;
}

const echo = (): Wanted => {
  const path = `/echo/${count++}`;
  return { path, expected: (answer) => answer.toString() === `${path} 0` };
};
const upload = (): Wanted => {
  const path = `/upload/${count++}`;
  return { path, body: Buffer.alloc(65_536), expected: (answer) => answer.toString() === `${path} 65536` };
};
const download = (): Wanted => ({ path: '/bytes/1000000', expected: (answer) => answer.length === 1_000_000 });

/** One request by HTTP/1.1; like a browser, it repeats a request for which a kept connection was closed. */
function ask(host: string, wanted: Wanted, agent: Agent | false, from?: string): Promise<IncomingHttpHeaders> {
  return new Promise((resolve, reject) => {
    const req = request({
      ...addressFor(host, from),
      servername: host,
      ca,
      agent,
      path: wanted.path,
      method: wanted.body ? 'POST' : 'GET',
      headers: { host: `${host}:${httpsPort}`, ...wanted.headers },
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    let answered = false;
    req.once('response', (res) => {
      answered = true;
      buffer(res)
        .then((answer) => {
          check(Number(res.statusCode), answer, wanted);
          resolve(res.headers);
        })
        .catch(reject);
    });
    req.once('error', (error: NodeJS.ErrnoException) => {
      const retry = req.reusedSocket && !answered && !wanted.body && error.code === 'ECONNRESET';
      if (retry) ask(host, wanted, false).then(resolve, reject);
      else reject(error);
    });
    req.end(wanted.body);
  });
}

function check(status: number, answer: Buffer, { status: wanted = 200, expected }: Wanted): void {
  if (status !== wanted) throw new Error(`status ${status} ${/ERR_\w+/.exec(answer.toString())?.[0] ?? ''}`);
  if (!expected(answer)) throw new Error('wrong body');
}

const sessions = new Map<string, ClientHttp2Session>();

/** The client's HTTP/2 connection to a host, opened again when the last one is closed. */
function sessionTo(host: string): ClientHttp2Session {
  const open = sessions.get(host);
  if (open && !open.closed && !open.destroyed) return open;
  const session = connect(`https://${host}:${httpsPort}`, {
    createConnection: () => {
      const socket = connectTls({ ...addressFor(host), servername: host, ca, ALPNProtocols: ['h2'] });
      return socket.once('close', () => session.destroy());
    },
  });
  session.on('error', () => session.destroy());
  sessions.set(host, session);
  return session;
}

function askHttp2(host: string, wanted: Wanted): Promise<void> {
  return new Promise((resolve, reject) => {
    const stream = sessionTo(host).request({ ':path': wanted.path }, { signal: AbortSignal.timeout(PATIENCE_MS) });
    let status = 0;
    stream.once('response', (headers) => {
      status = Number(headers[':status']);
    });
    stream.once('error', reject);
    buffer(stream)
      .then((answer) => resolve(check(status, answer, wanted)), reject)
      .catch(reject);
  });
}

/** Starts the session of an agent. As agents do, it tries again a second after it was refused; but only once. */
async function comeOnline(port: number): Promise<void> {
  await startSession(port).catch(async (error: Error) => {
    if (trace)
      process.stderr.write(`${new Date().toISOString()} agent at port ${port} refused once: ${error.message}\n`);
    await delay(1_000);
    await startSession(port);
  });
}

/** Starts a session, and ends it at once: those of SDKs stay until their heartbeats are missed. */
async function startSession(port: number): Promise<void> {
  const life = { from: '127.0.4.9', signal: AbortSignal.timeout(PATIENCE_MS) };
  const { socket, answer } = await ProtocolAgent.open({ ...life, target: { sessionPort: port, authtoken } });
  const isOpen = !socket.destroyed;
  socket.destroy();
  if (!isOpen) throw new Error(`session refused ${/ERR_\w+/.exec(answer)?.[0] ?? 'without an answer'}`);
}

const SHARED_HOSTS: string[] = Object.values(SHARED);
/** Clients of the shared tenant have addresses that no attacker has, too. */
const askShared = (host: string, wanted: Wanted) =>
  ask(host, wanted, kept, `127.0.4.${10 + SHARED_HOSTS.indexOf(host)}`);

/** Signs somebody in at the provider; returns the cookies of the session. */
async function signIn(): Promise<string> {
  const redirected = { status: 302, expected: () => true };
  const begun = begunBy(await askShared(SHARED.signIn, { ...redirected, path: '/', headers: NAVIGATION }));
  const path = callbackPath(begun.nonce, begun.state);
  const headers = { ...NAVIGATION, cookie: begun.cookie };
  const { 'set-cookie': cookies = [] } = await askShared(SHARED.signIn, { ...redirected, path, headers });
  return cookiesOf(cookies.filter((cookie) => !cookie.includes('Max-Age=0')));
}

let session: Promise<string> | null = null;

async function askSignedIn(): Promise<IncomingHttpHeaders> {
  session ??= signIn();
  session.catch(() => {
    session = null;
  });
  return askShared(SHARED.signIn, { ...echo(), headers: { cookie: await session } });
}

interface Kind {
  kind: string;
  besideAttackers?: boolean;
  everyMs: number;
  ask(host: string): Promise<unknown>;
}

const KINDS: Kind[] = [
  { kind: 'HTTP/1.1, kept connections', everyMs: 100, ask: (host) => ask(host, echo(), kept) },
  { kind: 'HTTP/1.1, a new connection each', everyMs: 500, ask: (host) => ask(host, echo(), false) },
  { kind: 'HTTP/2', everyMs: 100, ask: (host) => askHttp2(host, echo()) },
  { kind: 'POST of 64 KiB', everyMs: 500, ask: (host) => ask(host, upload(), kept) },
  { kind: 'download of 1 MB', everyMs: 2000, ask: (host) => ask(host, download(), kept) },
  {
    kind: "a new connection each, at an attacker's address",
    besideAttackers: true,
    everyMs: 2000,
    ask: (host) => ask(host, echo(), false, '127.0.1.1'),
  },
  { kind: 'agent, a new session each, at the session port', everyMs: 1000, ask: () => comeOnline(sessionPort) },
  { kind: 'agent, a new session each, at the HTTPS port', everyMs: 1000, ask: () => comeOnline(httpsPort) },
  { kind: 'shared tenant: http-request', everyMs: 500, ask: () => askShared(SHARED.asking, echo()) },
  { kind: 'shared tenant: find-replace in 64 KiB', everyMs: 1000, ask: () => askShared(SHARED.searching, upload()) },
  { kind: 'shared tenant: a client that is signed in', everyMs: 500, ask: askSignedIn },
  { kind: 'shared tenant: a client that signs in', everyMs: 1000, ask: signIn },
  { kind: 'shared tenant: beside a hung upstream', everyMs: 250, ask: () => askShared(SHARED.besideHung, echo()) },
];

const lateness = monitorEventLoopDelay();
lateness.enable();
const kinds = await Promise.all(KINDS.map(visit));
process.stdout.write(`${JSON.stringify({ kinds, lateP99: lateness.percentile(99) / 1e6 } satisfies Visited)}\n`, () =>
  process.exit(),
);

/** Sends requests of one kind at a steady rate, however long answers take. */
async function visit({ kind, besideAttackers = false, everyMs, ask }: Kind): Promise<VisitsOfKind> {
  const times: number[] = [];
  const failures: Record<string, number> = {};
  const asked: Promise<unknown>[] = [];
  const one = async (host: string) => {
    const from = performance.now();
    try {
      // The signals of the requests do not keep the process alive, and HTTP/2 can lose a request with its connection.
      await within(ask(host), 'the answer', PATIENCE_MS + 1_000);
    } catch (error) {
      const { code, message, name } = error as NodeJS.ErrnoException;
      const reason =
        name === 'AbortError' || name === 'TimeoutError' || /still not after/.test(message)
          ? 'no answer in 10 s'
          : (code ?? message);
      failures[reason] = (failures[reason] ?? 0) + 1;
      if (trace) {
        const after = Math.round(performance.now() - from);
        process.stderr.write(`${new Date().toISOString()} ${host}, ${kind}: ${reason} after ${after} ms\n`);
      }
    }
    const took = performance.now() - from;
    if (trace && took > SLOW_MS)
      process.stderr.write(`${new Date().toISOString()} ${host}, ${kind}: took ${Math.round(took)} ms\n`);
    times.push(took);
  };
  const end = performance.now() + seconds * 1000;
  await new Promise<void>((resolve) => {
    const timer = setInterval(() => {
      asked.push(one(hosts[asked.length % hosts.length] ?? ''));
      if (performance.now() < end) return;
      clearInterval(timer);
      resolve();
    }, everyMs);
  });
  await Promise.all(asked);
  const [p50 = 0, p99 = 0, max = 0] = [0.5, 0.99, 1].map((share) => quantile(times, share));
  return { kind, besideAttackers, requests: times.length, failures, p50, p99, max };
}
