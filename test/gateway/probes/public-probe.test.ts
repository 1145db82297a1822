import { createServer, type IncomingMessage } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { connect } from 'node:net';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { PROBE_HEADER, ProbeTokens, parseOutcome, probeText } from '../../../src/gateway/endpoints/probe-outcome.ts';
import { PublicProbe } from '../../../src/gateway/probes/public-probe.ts';
import type { AccessWay } from '../../../src/traffic-policy/access.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { freePorts } from '../../support/free-ports.ts';
import { agentSession, getPublic, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { listening } from '../../support/loopback.ts';
import { NameServer } from '../../support/name-server.ts';
import { until } from '../../support/until.ts';

const DOMAIN = 'gateway.localhost';
let gateway: TestGateway;
let tokens: ProbeTokens;
let alive: number;
let dead: number;
const asked: IncomingMessage[] = [];
let status = 200;

beforeAll(async () => {
  // So that it knows probes, though it asks nobody itself.
  gateway = await startTestGateway({ probes: ['nobody.invalid'] });
  tokens = new ProbeTokens(() => gateway.store.box.keysFor(ProbeTokens.PURPOSE));
  alive = await listening(
    createServer((req, res) => {
      asked.push(req);
      res.writeHead(status, { location: 'https://elsewhere.example.com/' }).end();
    }),
  );
  dead = (await freePorts(1)).first;
});
afterAll(() => gateway.close());

const rule = (...actions: object[]) => ({ on_http_request: [{ actions }] });
const action = (type: string, config: object = {}) => rule({ type, config });

function probe(own: Partial<ConstructorParameters<typeof PublicProbe>[0]> = {}): PublicProbe {
  const here = { host: '127.0.0.1', ports: { http: gateway.httpPort, https: gateway.httpsPort } };
  return new PublicProbe({ ownName: null, resolvers: null, tokens, trusted: () => gateway.sessionCa, here, ...own });
}

/** An endpoint with a policy, of the SDK. @returns its URL, and how to ask it */
async function endpoint(name: string, policy: object | null, port = alive) {
  const host = `${name}.${DOMAIN}`;
  const session = await agentSession(gateway).connect();
  onTestFinished(() => session.close().catch(() => {}));
  const builder = session.httpEndpoint().domain(host);
  if (policy !== null) builder.trafficPolicy(JSON.stringify(policy));
  void (await builder.listen(false)).forward(`http://127.0.0.1:${port}`).catch(() => {});
  const [online] = gateway.endpoints.atUrl(`https://${host}:${gateway.httpsPort}`);
  if (online === undefined) throw new Error('not online');
  const ask = (access: readonly AccessWay[] = online.policy.access) => probe().ask({ url: online.url, access });
  return { host, url: online.url, traffic: online.traffic, ask };
}

it('reaches an upstream as a client does, says who asks, follows no redirect, and counts nowhere', async () => {
  const { host, url, traffic, ask } = await endpoint('alive', null);
  const responses = [...Object.values(gateway.counters.responses)];
  for (const each of [200, 302, 404, 401, 501]) {
    status = each;
    expect(await ask()).toEqual({ stage: null, message: null });
  }
  status = 200;
  const seen = asked.filter(({ headers }) => headers.host === new URL(url).host);
  expect(seen.map(({ method, url: path, headers }) => [method, path, headers.host])).toEqual(
    Array(5).fill(['HEAD', '/', new URL(url).host]),
  );
  expect(seen[0]?.headers['user-agent']).toMatch(/^device-agent-probe\//);
  expect(seen[0]?.headers).not.toHaveProperty(PROBE_HEADER);
  expect(traffic).toMatchObject({ requests: 0, errors: 0, received: 0, sent: 0, ended: null });
  expect([...Object.values(gateway.counters.responses)]).toEqual(responses);
  // Who says so without the key is a client.
  await getPublic(gateway, url, { [PROBE_HEADER]: tokens.issue(`other.${DOMAIN}`) });
  expect(traffic.requests).toBe(1);
  expect(asked.at(-1)?.headers.host).toBe(new URL(url).host);
  expect(tokens.isValid(host, tokens.issue(host))).toBe(true);
});

it('takes no answer from an upstream, whatever that sends', async () => {
  const texts = ['reached %', 'reached -', `upstream ${'x'.repeat(3_000)}`, 'upstream %ED%A0%80', 'nonsense'];
  expect(texts.map(parseOutcome)).toEqual([null, { stage: null, message: null }, null, null, null]);
  const message = `${'ü'.repeat(500)}\ud800`;
  const sent = parseOutcome(probeText({ stage: 'upstream', message }));
  expect(sent).toEqual({ stage: 'upstream', message: 'ü'.repeat(200) });
});

it('names the stage that broke', async () => {
  const found = async (name: string, policy: object | null, port?: number) =>
    (await endpoint(name, policy, port)).ask();
  expect(await found('dead', null, dead)).toMatchObject({
    stage: 'upstream',
    message: expect.stringMatching(/cannot connect/),
  });
  status = 503;
  expect(await found('failing', null)).toEqual({ stage: 'upstream', message: 'it answers 503' });
  status = 200;
  expect(await found('denied', action('deny', { status_code: 403 }))).toEqual({
    stage: 'policy',
    message: 'the action deny answers 403',
  });
  expect(await found('closed', action('close-connection'))).toMatchObject({ stage: 'policy' });
  const nowhere = action('forward-internal', { url: 'https://nowhere.internal' });
  expect(await found('nowhere', nowhere)).toMatchObject({ stage: 'session' });
  const unbound = { url: `http://unbound.${DOMAIN}:${gateway.httpPort}`, access: ['everyone'] } as const;
  expect(await probe().ask(unbound)).toEqual({ stage: 'session', message: 'no agent has it open' });
  const ports = { http: dead, https: dead };
  const refused = probe({ here: { host: '127.0.0.1', ports } });
  expect(await refused.ask(unbound)).toMatchObject({ stage: 'connection' });
});

it('needs no sign-in to see that what is behind is there or not, and uses up no limit', async () => {
  const password = action('basic-auth', { credentials: ['user:password'] });
  expect(await (await endpoint('password', password)).ask()).toEqual({ stage: null, message: null });
  expect(await (await endpoint('locked', password, dead)).ask()).toMatchObject({ stage: 'upstream' });
  const page = await endpoint('page', action('custom-response', { status_code: 200, content: 'hello' }), dead);
  expect(await page.ask()).toEqual({ stage: null, message: null });
  const addresses = action('restrict-ips', { enforce: true, deny: ['127.0.0.0/8'] });
  expect(await (await endpoint('addresses', addresses, dead)).ask()).toMatchObject({ stage: 'upstream' });
  const limit = { name: 'one', algorithm: 'sliding_window', capacity: 1, rate: '60s', bucket_key: ['conn.client_ip'] };
  const limited = await endpoint('limited', action('rate-limit', limit));
  for (let times = 0; times < 3; times++) expect(await limited.ask()).toEqual({ stage: null, message: null });
  expect((await getPublic(gateway, limited.url)).status).toBe(200);
  expect((await getPublic(gateway, limited.url)).status).toBe(429);
});

it('takes no certificate that clients would not take, and no other server for the gateway', async () => {
  const issuer = await issueCertificate({ subject: 'CN=authority', ca: true });
  const serve = async (name: string, own: { notAfter?: Date } = {}) => {
    const options = { subject: `CN=${name}`, names: [name], issuer, notBefore: new Date('2020-01-01'), ...own };
    const { certificatePem: cert, privateKeyPem: key } = await issueCertificate(options);
    const https = await listening(createHttpsServer({ cert, key }, (_req, res) => void res.end()));
    return { here: { host: '127.0.0.1', ports: { http: https, https } }, trusted: () => issuer.certificatePem };
  };
  const cam = { url: `https://cam.${DOMAIN}`, access: ['everyone'] } as const;
  const expired = await serve(`cam.${DOMAIN}`, { notAfter: new Date(Date.now() - 60_000) });
  expect(await probe(expired).ask(cam)).toMatchObject({
    stage: 'certificate',
    message: expect.stringMatching(/expired/),
  });
  const other = await serve(`other.${DOMAIN}`);
  expect(await probe(other).ask(cam)).toMatchObject({ stage: 'certificate' });
  const foreign = await serve(`cam.${DOMAIN}`);
  expect(await probe(foreign).ask(cam)).toMatchObject({
    stage: 'name',
    message: expect.stringMatching(/another server/),
  });
});

it('connects to nothing but the addresses of the gateway, whatever a name says', async () => {
  const names = await NameServer.start();
  onTestFinished(() => names.stop());
  const own = 'api.gateway.test';
  const asking = probe({ ownName: own, resolvers: [names.address] });
  const ask = (host: string) => asking.ask({ url: `https://${host}:${trap}`, access: ['everyone'] });
  const connected: string[] = [];
  const trapped = createServer();
  trapped.on('connection', ({ remoteAddress = '' }) => connected.push(remoteAddress));
  const trap = await listening(trapped);
  // Both do not answer: nothing can be said.
  names.break(own);
  names.break('cam.example.com');
  expect(await ask('cam.example.com')).toBeNull();
  names.mend(own);
  names.add({ type: 'A', name: own, data: '192.0.2.1' });
  const later = probe({ ownName: own, resolvers: [names.address] });
  const askLater = (host: string) => later.ask({ url: `https://${host}:${trap}`, access: ['everyone'] });
  expect(await askLater('cam.example.com')).toMatchObject({ stage: 'name', message: expect.stringMatching(/^lookup/) });
  expect(await askLater('missing.example.com')).toMatchObject({
    stage: 'name',
    message: expect.stringMatching(/no address/),
  });
  names.add({ type: 'A', name: 'taken.example.com', data: '127.0.0.1' });
  expect(await askLater('taken.example.com')).toEqual({
    stage: 'name',
    message: 'the DNS says 127.0.0.1, but the gateway is 192.0.2.1',
  });
  expect(connected).toEqual([]);
  // The trap would have noticed.
  const socket = connect(trap, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  await until(() => connected.length === 1, 'the trap');
});
