/** A gateway that clients and agents know by its IP address alone. */
import { once } from 'node:events';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { request } from 'node:https';
import type { AddressInfo, LookupFunction } from 'node:net';
import { text } from 'node:stream/consumers';
import { connect, createServer as createTlsServer } from 'node:tls';
import type { Listener, Session } from '@ngrok/ngrok';
import { describe, expect, it, onTestFinished } from 'vitest';
import { installationFor } from '../../src/agent/join/installation.ts';
import { enrol } from '../../src/agent/join/join-site.ts';
import type { GatewayOptions } from '../../src/gateway/context/gateway-options.ts';
import { EndOfSession } from '../../src/gateway/endpoints/session-end.ts';
import type { Gateway } from '../../src/gateway/gateway.ts';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import { NO_PROXIES } from '../../src/lib/network/proxy-rules.ts';
import { systemClock } from '../../src/lib/time/clock.ts';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { issueCertificate } from '../support/certificates.ts';
import { inviteTo } from '../support/enrolment.ts';
import { freePorts } from '../support/free-ports.ts';
import { agentSession, managementClientOf, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { listening } from '../support/loopback.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const IP = '127.0.0.1';
const code = (errorCode: string, message = '') =>
  expect.objectContaining({ errorCode, message: expect.stringContaining(message) });

async function start(options: Partial<GatewayOptions> & { ports?: number } = {}): Promise<TestGateway> {
  const { ports = 4, ...others } = options;
  const httpsPorts = await freePorts(ports);
  const gateway = await startTestGateway({ ip: IP, httpsPorts, sessionPort: null, ...others });
  onTestFinished(() => gateway.close());
  return gateway;
}

/** An https endpoint of the real SDK. */
async function serve(
  session: Session,
  answer: Parameters<typeof startHttpService>[number],
  domain?: string,
): Promise<Listener> {
  const builder = session.httpEndpoint();
  if (domain !== undefined) builder.domain(domain);
  const listener = await builder.listen(false);
  const service = await startHttpService(answer);
  onTestFinished(() => service.close());
  // Settles when the listener closes, which these tests do not need.
  listener.forward(service.url).catch(() => {});
  return listener;
}

const lookupLoopback: LookupFunction = (_name, { all }, done) => done(null, all ? [{ address: IP, family: 4 }] : IP, 4);
const portOf = (listener: Listener) => Number(new URL(String(listener.url())).port);

interface Answer {
  status: number | undefined;
  headers: IncomingHttpHeaders;
  body: string;
}

/** GET as programs do that trust the gateway's CA: the certificate must be for the address, or the name, of the URL. */
function get({ sessionCa }: Gateway, url: string, headers: Record<string, string> = {}): Promise<Answer> {
  const { hostname } = new URL(url);
  const place = { lookup: lookupLoopback, servername: hostname === IP ? '' : hostname };
  return new Promise((resolve, reject) => {
    const answered = async (response: IncomingMessage) =>
      resolve({ status: response.statusCode, headers: response.headers, body: await text(response) });
    request(url, { ca: sessionCa, headers, agent: false, ...place }, answered)
      .on('error', reject)
      .end();
  });
}

describe('an https endpoint of a gateway without a domain', () => {
  it('has a port of the address, and the upstream gets the host with the port', async () => {
    const gateway = await start();
    const session = await agentSession(gateway).connect();
    const listener = await serve(session, (req, res) => void res.end(JSON.stringify(req.headers)));
    const url = String(listener.url());
    expect(url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
    const { status, body } = await get(gateway, url);
    expect(status).toBe(200);
    const { host } = new URL(url);
    expect(JSON.parse(body)).toMatchObject({ host, 'x-forwarded-host': host, 'x-forwarded-proto': 'https' });
  });

  it('keeps its port when agent and gateway start again', async () => {
    const dataDir = temporaryFolder();
    const httpsPorts = await freePorts(4);
    const urls: string[] = [];
    for (const name of ['cam.localhost', undefined]) {
      const wanted = name ?? new URL(urls[0] as string).host;
      const gateway = await start({ dataDir, httpsPorts });
      const session = await agentSession(gateway).connect();
      const others = await session.httpEndpoint().listen(false);
      const listener = await serve(session, (_req, res) => void res.end('here'), wanted);
      urls.push(String(listener.url()));
      expect(others.url()).not.toBe(listener.url());
      expect(await get(gateway, String(listener.url()))).toMatchObject({ status: 200, body: 'here' });
      await gateway.close();
    }
    expect(urls[1]).toBe(urls[0]);
  });

  it('has clients wait for an agent that is away for a moment', async () => {
    const gateway = await start();
    const first = await agentSession(gateway).connect();
    const url = String((await serve(first, (_req, res) => void res.end('first'), 'cam.localhost')).url());
    expect(await get(gateway, url)).toMatchObject({ body: 'first' });
    for (const { owner } of gateway.endpoints.list()) owner.end(new EndOfSession('silent', 'of the test'));
    const answer = get(gateway, url);
    const second = await agentSession(gateway).connect();
    await serve(second, (_req, res) => void res.end('second'), new URL(url).host);
    expect(await answer).toMatchObject({ status: 200, body: 'second' });
  });

  it('is refused with the range when all ports are taken, and has one that another endpoint gave up', async () => {
    const httpsPorts = await freePorts(2);
    const session = await agentSession(await start({ httpsPorts })).connect();
    const first = await session.httpEndpoint().listen(false);
    await session.tlsEndpoint().listen(false);
    const why = `all of ${httpsPorts.first}-${httpsPorts.last} are in use or kept for others; widen GATEWAY_HTTPS_PORTS`;
    await expect(session.httpEndpoint().listen(false)).rejects.toEqual(code('ERR_NGROK_18021', why));
    await first.close();
    expect((await session.httpEndpoint().listen(false)).url()).toBe(first.url());
  });

  it('of a device that has fewer ports has one that the device with all of them gives up', async () => {
    const gateway = await start({ ports: 8 });
    const installation = async () => installationFor(await inviteTo(gateway, { site: '*.hall.localhost' }), null, null);
    const join = async (name: string) => {
      const options = { name, proxies: NO_PROXIES, clock: systemClock, deadline: 0, onWait: () => {} };
      const { enrolment } = await enrol(await installation(), options);
      return agentSession(gateway).authtoken(enrolment.authtoken).connect();
    };
    const bind = (session: Session, name: string) =>
      session.httpEndpoint().domain(`${name}.hall.localhost`).listen(false);
    const greedy = await join('greedy');
    for (let at = 0; at < 8; at += 1) await bind(greedy, `n${at}-greedy`);
    const online = (end: string) =>
      gateway.endpoints.list().filter(({ host }) => host.endsWith(`${end}.hall.localhost`));
    const other = await join('other');
    for (const count of [1, 2, 3, 4]) {
      await bind(other, `n${count}-other`);
      expect([online('greedy').length, online('other').length]).toEqual([8 - count, count]);
    }
    await expect(bind(other, 'n5-other')).rejects.toEqual(code('ERR_NGROK_18021'));
  });

  it('is refused where its policy signs people in: browsers would send its cookies to other ports', async () => {
    const gateway = await start();
    const session = await agentSession(gateway).connect();
    for (const type of ['gateway-sign-in', 'gateway-share-links']) {
      const policy = JSON.stringify({ on_http_request: [{ actions: [{ type }] }] });
      const listen = session.httpEndpoint().trafficPolicy(policy).listen(false);
      await expect(listen).rejects.toEqual(code('ERR_NGROK_9026', 'browsers send the cookies of one port to all'));
    }
  });

  it('gets none of the cookies that other ports and the dashboard have set', async () => {
    const gateway = await start();
    const session = await agentSession(gateway).connect();
    const set = [
      'id=1; Path=/; HttpOnly; Secure',
      'plain=1; httponly',
      'theme=dark; Path=/',
      '__Host-device-agent=x; Path=/; Secure; HttpOnly',
    ];
    const listener = await serve(session, (req, res) => {
      res.setHeader('set-cookie', set);
      res.end(req.headers.cookie ?? 'none');
    });
    const [, mark] =
      /^id(~.*)=1;/.exec((await get(gateway, String(listener.url()))).headers['set-cookie']?.[0] ?? '') ?? [];
    expect(mark).toMatch(new RegExp(`^~${portOf(listener)}-[\\w-]{12}$`));
    // Of the name that had the port before, and as earlier versions wrote it.
    const before = String(mark).replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'));
    const foreign = `id${before}=before; id~${portOf(listener)}=earlier; id~1-abcdefghijkl=other; __Host-device-agent=dashboard`;
    const cookie = `id${mark}=own; ${foreign}; theme=dark; __Host-device-agent${mark}=page`;
    const { headers, body } = await get(gateway, String(listener.url()), { cookie });
    expect(body).toBe('id=own; theme=dark; __Host-device-agent=page');
    expect(headers['set-cookie']).toEqual([
      `id${mark}=1; Path=/; HttpOnly; Secure`,
      `plain${mark}=1; httponly; Secure`,
      'theme=dark; Path=/',
      `theme${mark}=; Path=/; Max-Age=0`,
      `__Host-device-agent${mark}=x; Path=/; Secure; HttpOnly`,
    ]);
  });

  it('hides the management API, which answers at the address itself', async () => {
    const gateway = await start();
    const session = await agentSession(gateway).connect();
    const listener = await serve(session, (_req, res) => void res.end('upstream'));
    expect(gateway.apiUrl).toBe(`https://${IP}:${gateway.httpsPort}`);
    expect((await get(gateway, `${gateway.apiUrl}/api_keys`)).status).toBe(403);
    for (const host of [new URL(gateway.apiUrl).host, 'api.localhost', 'else.example.com'])
      expect((await get(gateway, `${listener.url()}/api_keys`, { host })).body).toBe('upstream');
  });

  it('keeps its URL when the gateway gets a domain, and has a name besides, as new ones have', async () => {
    const dataDir = temporaryFolder();
    const httpsPorts = await freePorts(4);
    const before = await start({ dataDir, httpsPorts });
    const url = (
      await (await agentSession(before).connect()).httpEndpoint().domain('cam.localhost').listen(false)
    ).url();
    await before.close();
    const gateway = await start({ dataDir, httpsPorts, domain: 'gateway.example.com' });
    expect(gateway.apiUrl).toBe(`https://api.gateway.example.com:${gateway.httpsPort}`);
    const session = await agentSession(gateway, `${IP}:${gateway.httpsPort}`).connect();
    const listener = await serve(session, (_req, res) => void res.end('here'), 'cam.localhost');
    expect(listener.url()).toBe(url);
    expect(await get(gateway, String(url))).toMatchObject({ status: 200, body: 'here' });
    const byName = `https://port-${portOf(listener)}.gateway.example.com:${gateway.httpsPort}`;
    const api = await managementClientOf({ ...gateway, apiUrl: `https://${IP}:${gateway.httpsPort}` });
    const [shown] = (await api.endpoints.list()).items;
    expect(shown).toMatchObject({ url, domain_url: byName });
    expect(await get(gateway, byName)).toMatchObject({ status: 200, body: 'here' });
    const host = new URL(byName).hostname;
    await expect(session.httpEndpoint().domain(host).listen(false)).rejects.toEqual(code('ERR_NGROK_319', 'itself'));
    const beyond = `port-${httpsPorts.last + 1}.gateway.example.com`;
    expect((await session.httpEndpoint().domain(beyond).listen(false)).url()).toContain(beyond);
    // Clients wait for its agent there, too.
    for (const { owner } of gateway.endpoints.list()) owner.end(new EndOfSession('silent', 'of the test'));
    const answer = get(gateway, byName);
    const again = await agentSession(gateway, `${IP}:${gateway.httpsPort}`).connect();
    await serve(again, (_req, res) => void res.end('again'), 'cam.localhost');
    expect(await answer).toMatchObject({ status: 200, body: 'again' });
    expect((await again.httpEndpoint().listen(false)).url()).toMatch(/\.gateway\.example\.com:\d+$/);
    // Devices that have joined by the address call the API there.
    expect((await get(gateway, `https://${IP}:${gateway.httpsPort}/api_keys`)).status).toBe(403);
  });

  it('has its name besides shown on the device once the gateway has a domain, with the native connector', async () => {
    const own = { dataDir: temporaryFolder(), httpsPorts: await freePorts(4) };
    const before = await start(own);
    const { httpsPort, caFile, store } = before;
    const { token: authtoken } = await store.database.write(() => issueCredential(store, { acl: [] }));
    const folder = temporaryFolder();
    const agent = AgentProcess.inTest(folder, {
      ...{ NGROK_AUTHTOKEN: authtoken, NGROK_SERVER_ADDR: `${IP}:${httpsPort}` },
      ...{ NGROK_CA_CERT: caFile, AGENT_CONNECTOR: 'native' },
    });
    const api = await agent.ready();
    const env = { AGENT_PORT: new URL(api).port };
    expect(await deviceAgent(['tunnels', 'start', '8001', '-d', 'cam.localhost'], folder, env)).toMatchObject({
      code: 0,
    });
    const tunnel = async () =>
      ((await (await fetch(`${api}/tunnels`)).json()) as [{ url: string; url_part: string }])[0];
    const { url } = await tunnel();
    expect(await tunnel()).not.toHaveProperty('domain_url');
    await before.close();
    await start({ ...own, httpsPort, domain: 'gateway.example.com' });
    const byName = `https://port-${new URL(url).port}.gateway.example.com:${httpsPort}`;
    await expect.poll(tunnel, { timeout: 20_000 }).toMatchObject({ url, status: 'degraded', domain_url: byName });
    const { stdout } = await deviceAgent(['tunnels', 'show', String((await tunnel()).url_part)], folder, env);
    expect(stdout).toMatch(new RegExp(`^URL: +${url}\\nBy name: +${byName}$`, 'm'));
  });

  it('gets none of the cookies that the one before has set at the name of their port', async () => {
    const gateway = await start({ ports: 1, domain: 'gateway.example.com' });
    const session = await agentSession(gateway, `${IP}:${gateway.httpsPort}`).connect();
    const set = ['id=1; HttpOnly; Secure; Domain=gateway.example.com', 'theme=dark; Path=/'];
    const answer: Parameters<typeof serve>[1] = (req, res) =>
      void res.writeHead(200, { 'set-cookie': set }).end(req.headers.cookie ?? 'none');
    const first = await serve(session, answer, 'cam.localhost');
    const byName = `https://port-${portOf(first)}.gateway.example.com:${gateway.httpsPort}`;
    const [cookie = '', ...others] = (await get(gateway, byName)).headers['set-cookie'] ?? [];
    expect(cookie).toMatch(new RegExp(`^id~${portOf(first)}-[\\w-]{12}=1; HttpOnly; Secure$`));
    expect(others[0]).toBe('theme=dark; Path=/');
    const sent = { cookie: `${cookie.split(';')[0]}; theme=dark` };
    expect((await get(gateway, byName, sent)).body).toBe('id=1; theme=dark');
    await first.close();
    const next = await serve(session, answer, 'other.localhost');
    expect(next.url()).toBe(first.url());
    expect((await get(gateway, byName, sent)).body).toBe('theme=dark');
  });

  it('of plain http is refused, as it would have no port', async () => {
    const session = await agentSession(await start()).connect();
    await expect(session.httpEndpoint().scheme('HTTP').listen(false)).rejects.toEqual(
      code('ERR_NGROK_332', 'need a domain'),
    );
  });
});

describe('a tls endpoint of a gateway without a domain', () => {
  it('passes TLS through at a port of the address', async () => {
    const warned: string[] = [];
    const onWarning = ({ message }: Error) => warned.push(message);
    process.on('warning', onWarning);
    onTestFinished(() => void process.off('warning', onWarning));
    const gateway = await start();
    const session = await agentSession(gateway).connect();
    const { certificatePem: cert, privateKeyPem: key } = await issueCertificate({ subject: 'CN=device', names: [IP] });
    const upstream = createTlsServer({ cert, key }, (socket) => void socket.end('over tls'));
    await listening(upstream);
    onTestFinished(() => void upstream.close());
    const listener = await session.tlsEndpoint().listen(false);
    listener.forward(`tcp://127.0.0.1:${(upstream.address() as AddressInfo).port}`).catch(() => {});
    expect(listener.url()).toMatch(/^tls:\/\/127\.0\.0\.1:\d+$/);
    const socket = connect({ host: IP, port: portOf(listener), ca: cert });
    await once(socket, 'secureConnect');
    expect(await text(socket)).toContain('over tls');
    expect(warned.filter((message) => message.includes('memory leak'))).toEqual([]);
  });

  it('is refused where the gateway would decrypt what browsers send to all ports', async () => {
    const session = await agentSession(await start()).connect();
    const policy = JSON.stringify({ on_tcp_connect: [{ actions: [{ type: 'terminate-tls' }] }] });
    await expect(session.tlsEndpoint().trafficPolicy(policy).listen(false)).rejects.toEqual(
      code('ERR_NGROK_301', 'without a domain'),
    );
  });

  it('denies what its policy forwards to an endpoint where the gateway would decrypt it', async () => {
    const gateway = await start();
    const session = await agentSession(gateway).connect();
    const onConnect = (action: object) => JSON.stringify({ on_tcp_connect: [{ actions: [action] }] });
    const decrypted = session.tlsEndpoint().domain('x.internal');
    await decrypted.trafficPolicy(onConnect({ type: 'terminate-tls' })).listen(false);
    const forward = onConnect({ type: 'forward-internal', config: { url: 'tls://x.internal' } });
    const outer = await session.tlsEndpoint().trafficPolicy(forward).listen(false);
    const socket = connect({ host: IP, port: portOf(outer), rejectUnauthorized: false });
    await expect(once(socket, 'secureConnect')).rejects.toMatchObject({ code: 'ECONNRESET' });
  });
});
