import { type CompiledPolicy, compilePolicy } from '../src/traffic-policy/engine.ts';
import type { PolicyConnection, PolicyEndpoint, PolicyRequest } from '../src/traffic-policy/policy-subjects.ts';
import { takeOwnCookies } from '../src/traffic-policy/sign-in/sign-in-cookies.ts';
import { BASIC_AUTH, DEFAULT_POLICY, EXPRESSIONS, TEN_RULES } from './support/policies.ts';
import { signedIn } from './support/signed-in.ts';

/** Until V8 has optimized what runs: a policy without expressions takes less time than V8 does meanwhile. */
const WARM_UP = 500_000;
const RUNS = 500_000;

const TLS = {
  ...{ sni: null, version: '1.3', cipherSuite: null, alpn: null, ja4: null },
  ...{ clientCertificate: null, serverCertificate: null },
};
const connection: PolicyConnection = {
  clientIp: '203.0.113.7',
  clientPort: 50123,
  serverIp: '198.51.100.1',
  serverPort: 443,
  startedAt: 0,
  tls: null,
  bytesIn: () => 0,
  bytesOut: () => 0,
};
const endpoint: PolicyEndpoint = {
  id: 'ep_1',
  url: 'https://cam.example.com',
  protocol: 'https',
  host: 'cam.example.com',
  port: 443,
};

function request(): PolicyRequest {
  const headers = [
    'Host',
    'cam.example.com',
    'User-Agent',
    'Mozilla/5.0 (X11; Linux x86_64) Chrome/120.0.0.0 Safari/537.36',
  ];
  headers.push(
    'Accept',
    'text/html',
    'Accept-Encoding',
    'gzip, br',
    'Accept-Language',
    'en',
    'Cookie',
    'session=abc; theme=dark',
  );
  headers.push('X-Forwarded-For', '203.0.113.7', 'X-Forwarded-Proto', 'https');
  return {
    method: 'GET',
    target: '/video/live?quality=high',
    clientHost: 'cam.example.com',
    clientTarget: '/video/live?quality=high',
    ownCookies: takeOwnCookies(headers),
    version: 'HTTP/1.1',
    headers,
    connection,
    endpoint,
    replaceBody: () => true,
    readBody: noBody,
  };
}

async function noBody(): Promise<null> {
  return null;
}

/** A request over TLS with one more header. */
function requestWith(name: string, value: string, target = '/'): PolicyRequest {
  const { headers, ...rest } = request();
  headers.push(name, value);
  const ownCookies = takeOwnCookies(headers);
  return { ...rest, headers, target, clientTarget: target, ownCookies, connection: { ...connection, tls: TLS } };
}

/** One request through both phases, as the edge calls them. */
function exchange({ onHttpRequest, onHttpResponse }: CompiledPolicy, make: () => PolicyRequest): void {
  const subject = make();
  if (onHttpRequest?.(subject) !== undefined) throw new Error('the request was answered');
  const response = { status: 200, headers: ['Content-Type', 'text/html', 'Content-Length', '5120'] };
  if (onHttpResponse?.(subject, response) !== undefined) throw new Error('the response was replaced');
}

function nanoseconds(policy: CompiledPolicy, make = request): number {
  for (let run = 0; run < WARM_UP; run++) exchange(policy, make);
  const start = process.hrtime.bigint();
  for (let run = 0; run < RUNS; run++) exchange(policy, make);
  return Number(process.hrtime.bigint() - start) / RUNS;
}

/** The same for policies that take further turns of the event loop. */
async function nanosecondsInTurns({ onHttpRequest }: CompiledPolicy, make: () => PolicyRequest): Promise<number> {
  let start = 0n;
  for (let run = -WARM_UP; run < RUNS; run++) {
    if (run === 0) start = process.hrtime.bigint();
    if ((await onHttpRequest?.(make())) !== undefined) throw new Error('the request was answered');
  }
  return Number(process.hrtime.bigint() - start) / RUNS;
}

const PASSWORD = `Basic ${Buffer.from('jo:correct horse').toString('base64')}`;
const ofCookie = (target: string, cookie: string) => requestWith('Cookie', cookie, target);

/** Processor time that policies add to a request. */
export async function benchPolicy(): Promise<void> {
  console.log('\nprocessor time of policies, one request through both phases');
  const none = nanoseconds(compilePolicy(null, 'https'));
  console.log(`making the request, no policy   ${none.toFixed(0)} ns`);
  for (const [name, text] of [
    ['default policy', DEFAULT_POLICY],
    ['ten CEL rules', TEN_RULES],
  ] as const) {
    const cost = nanoseconds(compilePolicy(text, 'https')) - none;
    console.log(`${name.padEnd(30)}  ${cost.toFixed(0)} ns more`);
  }
  for (const expression of EXPRESSIONS) {
    const text = JSON.stringify({ on_http_request: [{ expressions: [expression], actions: [{ type: 'deny' }] }] });
    const cost = nanoseconds(compilePolicy(text, 'https')) - none;
    console.log(`  ${cost.toFixed(0).padStart(6)} ns  ${expression}`);
  }

  const person = await signedIn('openid-connect', ofCookie);
  const ownPerson = await signedIn('gateway-sign-in', ofCookie);
  for (const [name, policy, header, value] of [
    ['basic-auth', compilePolicy(BASIC_AUTH, 'https'), 'Authorization', PASSWORD],
    ['openid-connect, signed in', person.policy, 'Cookie', person.cookie],
    ['gateway-sign-in, signed in', ownPerson.policy, 'Cookie', ownPerson.cookie],
  ] as const) {
    const make = () => requestWith(header, value);
    const cost = (await nanosecondsInTurns(policy, make)) - nanoseconds(compilePolicy(null, 'https'), make);
    console.log(`${name.padEnd(30)}  ${cost.toFixed(0)} ns more`);
  }
}
