import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Listener, Session } from '@ngrok/ngrok';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { parseListenerClosed, parseSdkError } from '../../src/agent/connectors/sdk/sdk-error.ts';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';
import { ManagementClient } from '../../src/management/client.ts';
import { fetchTrusting } from '../../src/management/fetch-trusting.ts';
import { enrolmentKey, installKey } from '../support/enrolment.ts';
import { freePorts } from '../support/free-ports.ts';
import { agentSession, getPublic, managementClientOf, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { listening } from '../support/loopback.ts';
import { recordingLog } from '../support/silent-log.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** Changes through the management API over HTTPS, and their effect on SDK agents. */
let upstream: Server;
beforeAll(async () => {
  upstream = createServer((_req, res) => res.end('from the device'));
  await listening(upstream);
});
afterAll(() => upstream.close());

let gateway: TestGateway;
let client: ManagementClient;
beforeEach(async () => {
  gateway = await startTestGateway({ tcpPorts: await freePorts(4) });
  client = await managementClientOf(gateway);
});
afterEach(() => gateway.close());

/** A bot user with an authtoken. */
async function account(acl: string[] = []) {
  const bot = await client.botUsers.create({ name: 'site A' });
  const credential = await client.credentials.create({ owner_id: bot.id, acl });
  return { bot, credential, authtoken: String(credential.token) };
}

const connect = (authtoken: string, to = gateway) => agentSession({ ...to, authtoken }).connect();

/** The gateway's error code in an SDK error. */
function codeOf(work: Promise<unknown>): Promise<string | null> {
  return work.then(
    () => null,
    (error: unknown) => parseSdkError(error, '').code ?? parseListenerClosed(error, '').code ?? String(error),
  );
}

const bindCode = (session: Session, domain: string) => codeOf(session.httpEndpoint().domain(domain).listen(false));

/** Binds a name and forwards it. */
async function serve(session: Session, domain: string): Promise<{ listener: Listener; ended: Promise<string | null> }> {
  const listener = await session.httpEndpoint().domain(domain).listen(false);
  const { port } = upstream.address() as AddressInfo;
  return { listener, ended: codeOf(listener.forward(`http://127.0.0.1:${port}`)) };
}

const publicStatus = async (domain: string) => (await getPublic(gateway, `https://${domain}/`)).status;

describe('an authtoken', () => {
  it('connects an agent when it is known and its owner is active; otherwise it is refused with a code', async () => {
    const { bot, authtoken } = await account();
    await expect(connect(authtoken)).resolves.toBeDefined();
    expect(await codeOf(connect(''))).toBe('ERR_NGROK_4018');
    expect(await codeOf(connect('nonsense'))).toBe('ERR_NGROK_105');
    expect(await codeOf(connect(`${authtoken.slice(0, -1)}!`))).toBe('ERR_NGROK_105');
    expect(await codeOf(connect(`${authtoken}x`))).toBe('ERR_NGROK_107');
    await client.botUsers.update(bot.id, { active: false });
    expect(await codeOf(connect(authtoken))).toBe('ERR_NGROK_300');
    await client.botUsers.update(bot.id, { active: true });
    await expect(connect(authtoken)).resolves.toBeDefined();
    await client.botUsers.delete(bot.id);
    expect(await codeOf(connect(authtoken))).toBe('ERR_NGROK_107');
  });

  it('keeps names that it has bound from devices of their site, but none that was refused or that the gateway chose', async () => {
    const { store } = gateway;
    const { id } = await enrolmentKey(gateway);
    const key = store.enrolmentKeys.get(id);
    if (key) await store.database.write(() => store.enrolmentKeys.update({ ...key, site: 'localhost' }));
    const session = await connect((await account()).authtoken);
    const refused = (domain: string, policy: object) =>
      codeOf(session.httpEndpoint().domain(domain).trafficPolicy(JSON.stringify(policy)).listen(false));
    expect(await bindCode(session, '*.localhost')).toBe('ERR_NGROK_318');
    expect(await refused('shop.localhost', { on_http_request: 1 })).toBe('ERR_NGROK_9026');
    expect(store.siteNames.kept()).toEqual([]);
    const chosen = new URL((await session.httpEndpoint().listen(false)).url() ?? '').hostname;
    expect(await bindCode(session, 'login.localhost')).toBe(null);
    expect(store.siteNames.among([chosen, 'login.localhost'])).toEqual([
      { hostname: 'login.localhost', device_id: null, released_from: null },
    ]);
  });

  it('that is refused is logged once, with the address and without the authtoken', async () => {
    const { log, lines } = recordingLog();
    const other = await startTestGateway({ log });
    onTestFinished(() => other.close());
    const wrong = `${other.authtoken}x`;
    for (let i = 0; i < 2; i++) expect(await codeOf(connect(wrong, other))).toBe('ERR_NGROK_107');
    const session = await connect(other.authtoken, other);
    for (let i = 0; i < 2; i++) expect(await bindCode(session, 'cam.example.com')).toBe('ERR_NGROK_319');
    const logged = lines.filter(({ msg }) => /online|refused/.test(String(msg)));
    const agent = {
      address: '127.0.0.1',
      session: expect.stringMatching(/^ts_/),
      credential: expect.stringMatching(/^cr_/),
    };
    expect(logged).toEqual([
      expect.objectContaining({ msg: 'agent refused', address: '127.0.0.1', code: 'ERR_NGROK_107', times: 1 }),
      expect.objectContaining({ ...agent, msg: 'agent session online' }),
      expect.objectContaining({ ...agent, msg: 'endpoint refused', code: 'ERR_NGROK_319', times: 1 }),
    ]);
    expect(JSON.stringify(lines)).not.toContain(other.authtoken.split('_').at(-1));
  });

  it('of a revoked device is refused with its name in the log, and not counted for alerts', async () => {
    const { log, lines } = recordingLog();
    const other = await startTestGateway({ log });
    onTestFinished(() => other.close());
    const { secret } = await enrolmentKey(other);
    const [api, raw] = [await managementClientOf(other), await GatewayClient.of(other)];
    const joined = await raw.call('POST', '/enrolments', { install_key: installKey(), secret, name: 'cabinet-7' });
    const { authtoken, device_id } = joined.body as { authtoken: string; device_id: string };
    const { token } = await other.store.database.write(() => issueApiKey(other.store, {}));
    const refusals = async () => {
      const metrics = await fetchTrusting({ ca: other.sessionCa })(`${other.apiUrl}/metrics`, {
        method: 'GET',
        headers: { authorization: `Bearer ${token}` },
        redirect: 'manual',
        signal: AbortSignal.timeout(5000),
      });
      return (await metrics.text()).match(/^device_agent_gateway_sessions_refused_total.*$/gm);
    };
    await api.devices.rotate(device_id);
    expect(await codeOf(connect(authtoken, other))).toBe('ERR_NGROK_107');
    const counted = ['device_agent_gateway_sessions_refused_total{code="ERR_NGROK_107"} 1'];
    expect(await refusals()).toEqual(counted);
    await api.devices.revoke(device_id);
    for (let i = 0; i < 2; i++) expect(await codeOf(connect(authtoken, other))).toBe('ERR_NGROK_107');
    expect(await refusals()).toEqual(counted);
    const facts = { msg: 'agent refused', device: device_id, name: 'cabinet-7', code: 'ERR_NGROK_107', times: 1 };
    expect(lines.filter(({ msg }) => msg === 'agent refused')).toEqual([expect.objectContaining(facts)]);
  });
});

describe('a name', () => {
  it('can be bound when ACL rules allow it and it is reserved, directly, by a wildcard or below the base domain', async () => {
    await client.reservedDomains.create({ domain: 'app.example.com' });
    await client.reservedDomains.create({ domain: '*.site.example.com' });
    const session = await connect(
      (await account(['bind:app.example.com', 'bind:*.site.example.com', 'bind:*.localhost'])).authtoken,
    );
    for (const domain of ['app.example.com', 'cam.site.example.com', 'a.b.site.example.com', 'cam.localhost']) {
      await serve(session, domain);
      expect(await publicStatus(domain), domain).toBe(200);
    }
  });

  it.each([
    ['the ACL rules do not allow it', ['bind:*.site.example.com'], 'app.example.com', 'ERR_NGROK_316'],
    ['it is not reserved', [], 'other.example.com', 'ERR_NGROK_319'],
    ['the gateway uses it itself', [], 'api.localhost', 'ERR_NGROK_319'],
  ])('is refused when %s', async (_, acl, domain, code) => {
    await client.reservedDomains.create({ domain: 'app.example.com' });
    await client.reservedDomains.create({ domain: '*.site.example.com' });
    const session = await connect((await account(acl)).authtoken);
    expect(await bindCode(session, domain)).toBe(code);
    expect(await publicStatus(domain)).not.toBe(200);
    // The session stays online.
    expect(await bindCode(session, acl.length > 0 ? 'x.site.example.com' : 'cam.localhost')).toBeNull();
  });

  it('can be a reserved wildcard that serves all other names below it', async () => {
    await client.reservedDomains.create({ domain: '*.site.example.com' });
    const session = await connect((await account(['bind:*.site.example.com'])).authtoken);
    expect(await bindCode(session, '*.deep.site.example.com')).toBe('ERR_NGROK_321');
    const { listener } = await serve(session, '*.site.example.com');
    expect(listener.url()).toBe(`https://*.site.example.com:${gateway.httpsPort}`);
    expect(await publicStatus('cam.site.example.com')).toBe(200);
    expect(await publicStatus('a.b.site.example.com')).toBe(200);
    expect(await publicStatus('site.example.com')).toBe(404);
    // An upstream that does not answer distinguishes the two.
    const exact = await session.httpEndpoint().domain('cam.site.example.com').listen(false);
    exact.forward('http://127.0.0.1:9').catch(() => {});
    expect(await publicStatus('cam.site.example.com')).toBe(502);
    expect(await publicStatus('door.site.example.com')).toBe(200);
    await exact.close();
    expect(await publicStatus('cam.site.example.com')).toBe(200);
    expect((await client.endpoints.list()).items).toMatchObject([
      { host: '*.site.example.com', hostport: `*.site.example.com:${gateway.httpsPort}`, pooling_enabled: false },
    ]);
  });

  it('is refused while another agent or a TLS edge uses it', async () => {
    const [first, second] = [await connect((await account()).authtoken), await connect((await account()).authtoken)];
    const { listener } = await serve(first, 'cam.localhost');
    expect(await bindCode(second, 'cam.localhost')).toBe('ERR_NGROK_334');
    // Clients of a name use one port, whether the edge is configured with its number or 443.
    for (const port of [gateway.httpsPort, 443]) {
      const taken = client.tlsEdges.create({ hostports: [`cam.localhost:${port}`] });
      await expect(taken).rejects.toMatchObject({ code: 'ERR_NGROK_7132' });
    }
    await listener.close();
    expect(await bindCode(second, 'cam.localhost')).toBeNull();
    for (const port of [gateway.httpsPort, 443]) {
      await client.tlsEdges.create({ hostports: [`edge${port}.localhost:${port}`] });
      expect(await bindCode(second, `edge${port}.localhost`)).toBe('ERR_NGROK_334');
    }
  });
});

describe('a revoked permission', () => {
  it.each([
    ['the bot user is deactivated', 'ERR_NGROK_300', ({ bot }) => client.botUsers.update(bot.id, { active: false })],
    ['the bot user is deleted', 'ERR_NGROK_107', ({ bot }) => client.botUsers.delete(bot.id)],
    ['the authtoken is deleted', 'ERR_NGROK_107', ({ credential }) => client.credentials.delete(credential.id)],
  ] satisfies [string, string, (owner: Awaited<ReturnType<typeof account>>) => Promise<unknown>][])(
    'ends the agent’s session when %s, and no other',
    async (_, refusedWith, revoke) => {
      const [mine, others] = [await account(), await account()];
      const endpoints = [
        await serve(await connect(mine.authtoken), 'one.localhost'),
        await serve(await connect(mine.authtoken), 'two.localhost'),
      ];
      await serve(await connect(others.authtoken), 'other.localhost');
      expect(await publicStatus('one.localhost')).toBe(200);
      await revoke(mine);
      expect(await publicStatus('one.localhost')).toBe(404);
      expect(await publicStatus('two.localhost')).toBe(404);
      expect(await Promise.all(endpoints.map(({ ended }) => ended))).toEqual(['ERR_NGROK_300', 'ERR_NGROK_300']);
      expect(await codeOf(connect(mine.authtoken))).toBe(refusedWith);
      expect(await publicStatus('other.localhost')).toBe(200);
      expect((await client.tunnelSessions.list()).items).toHaveLength(1);
      expect((await client.endpoints.list()).items).toHaveLength(1);
    },
  );

  it('ends only endpoints that narrower ACL rules no longer allow', async () => {
    const { credential, authtoken } = await account();
    const session = await connect(authtoken);
    const revoked = await serve(session, 'one.localhost');
    await serve(session, 'cam.site.localhost');
    await client.credentials.update(credential.id, { acl: ['bind:*.site.localhost'] });
    expect(await revoked.ended).toBe('ERR_NGROK_316');
    expect(await publicStatus('one.localhost')).toBe(404);
    expect(await publicStatus('cam.site.localhost')).toBe(200);
    expect(await bindCode(session, 'one.localhost')).toBe('ERR_NGROK_316');
  });

  it('ends endpoints of every protocol and labelled tunnels, by deactivation and by narrower ACL rules', async () => {
    const [narrowed, deactivated] = [await account(), await account()];
    const kinds = async (authtoken: string, name: string) => {
      const session = await connect(authtoken);
      const listeners = [
        await session.tcpEndpoint().listen(false),
        await session.tlsEndpoint().domain(`${name}.localhost`).listen(false),
        await session.labeledListener().label('site', name).listen(false),
        await session.httpEndpoint().domain(`${name}.internal`).listen(false),
      ];
      return listeners.map((listener) => codeOf(listener.forward('tcp://127.0.0.1:9')));
    };
    const [first, second] = [await kinds(narrowed.authtoken, 'one'), await kinds(deactivated.authtoken, 'two')];
    expect((await client.tunnels.list()).items).toHaveLength(8);
    await client.credentials.update(narrowed.credential.id, { acl: ['bind:*.site.localhost'] });
    expect(await Promise.all(first)).toEqual(['308', '316', '399', '316'].map((number) => `ERR_NGROK_${number}`));
    expect((await client.tunnels.list()).items).toHaveLength(4);
    await client.botUsers.update(deactivated.bot.id, { active: false });
    expect(await Promise.all(second)).toEqual(Array(4).fill('ERR_NGROK_300'));
    expect((await client.tunnels.list()).items).toEqual([]);
  });

  it('ends endpoints that only a deleted domain covered', async () => {
    const exact = await client.reservedDomains.create({ domain: 'app.site.example.com' });
    const wildcard = await client.reservedDomains.create({ domain: '*.site.example.com' });
    const session = await connect((await account()).authtoken);
    const [app, cam] = [await serve(session, 'app.site.example.com'), await serve(session, 'cam.site.example.com')];
    await serve(session, 'base.localhost');
    await client.reservedDomains.delete(wildcard.id);
    expect(await cam.ended).toBe('ERR_NGROK_319');
    expect(await publicStatus('cam.site.example.com')).toBe(404);
    expect(await publicStatus('app.site.example.com')).toBe(200);
    await client.reservedDomains.delete(exact.id);
    expect(await app.ended).toBe('ERR_NGROK_319');
    expect(await publicStatus('base.localhost')).toBe(200);
  });
});

describe('endpoints and sessions online', () => {
  it('are listed with references to each other until they are offline', async () => {
    const { bot, credential, authtoken } = await account();
    const domain = await client.reservedDomains.create({ domain: '*.site.example.com' });
    const session = await connect(authtoken);
    const { listener } = await serve(session, 'cam.site.example.com');
    const [[online], [tunnel], [connection]] = [
      (await client.endpoints.list()).items,
      (await client.tunnels.list()).items,
      (await client.tunnelSessions.list()).items,
    ];
    expect(online).toMatchObject({
      type: 'ephemeral',
      proto: 'https',
      hostport: `cam.site.example.com:${gateway.httpsPort}`,
      url: String(listener.url()),
      domain: { id: domain.id, uri: domain.uri },
      principal: { id: bot.id },
      tunnel: { id: tunnel?.id },
      tunnel_session: { id: connection?.id, uri: `${gateway.apiUrl}/tunnel_sessions/${connection?.id}` },
    });
    expect(tunnel).toMatchObject({
      id: online?.id.replace('ep_', 'tn_'),
      public_url: listener.url(),
      tunnel_session: { id: connection?.id },
      endpoint: { id: online?.id, uri: online?.uri },
    });
    expect(connection).toMatchObject({
      agent_version: expect.stringContaining('ngrok'),
      credential: { id: credential.id },
      ip: '127.0.0.1',
      transport: 'ngrok/2',
    });
    expect(await client.endpoints.get(String(online?.id))).toEqual(online);
    expect(await client.tunnels.get(String(tunnel?.id))).toEqual(tunnel);
    expect(await client.tunnelSessions.get(String(connection?.id))).toEqual(connection);
    await listener.close();
    await expect(client.endpoints.get(String(online?.id))).rejects.toMatchObject({ isNotFound: true });
    await expect(client.tunnels.get(String(tunnel?.id))).rejects.toMatchObject({ isNotFound: true });
    expect((await client.tunnelSessions.list()).items).toHaveLength(1);
  });

  it('of every protocol are listed', async () => {
    const session = await connect((await account()).authtoken);
    const tcp = await session.tcpEndpoint().poolingEnabled(true).listen(false);
    await session.tlsEndpoint().domain('raw.localhost').listen(false);
    await session.httpEndpoint().domain('web.internal').listen(false);
    const labeled = await session.labeledListener().label('site', 'a').metadata('m').listen(false);
    const port = Number(new URL(String(tcp.url())).port);
    const [internal, tls, address] = (await client.endpoints.list()).items;
    expect(address).toMatchObject({
      ...{ proto: 'tcp', host: 'localhost', port, hostport: `localhost:${port}`, url: tcp.url() },
      pooling_enabled: true,
    });
    expect(tls).toMatchObject({ proto: 'tls', host: 'raw.localhost', port: gateway.httpsPort, bindings: ['public'] });
    expect(internal).toMatchObject({ proto: 'https', hostport: 'web.internal:443', bindings: ['internal'] });
    const group = await client.tunnelGroupBackends.create({ labels: { site: 'a' } });
    const [tunnel, ...others] = (await client.tunnels.list()).items;
    expect(others).toHaveLength(3);
    expect(tunnel).toMatchObject({
      id: labeled.id(),
      metadata: 'm',
      labels: { site: 'a' },
      backends: [{ id: group.id }],
    });
    expect(tunnel).not.toHaveProperty('public_url');
    expect(group.tunnels).toEqual([{ id: labeled.id(), uri: `${gateway.apiUrl}/tunnels/${labeled.id()}` }]);
    await labeled.close();
    expect((await client.tunnelGroupBackends.get(group.id)).tunnels).toEqual([]);
  });

  it('can be stopped, restarted and updated while the session is online', async () => {
    const called: string[] = [];
    let done = () => {};
    const all = new Promise<void>((resolve) => {
      done = resolve;
    });
    const note = (what: string) => {
      called.push(what);
      if (called.length === 3) done();
    };
    await agentSession({ ...gateway, authtoken: (await account()).authtoken })
      .handleStopCommand(() => note('stop'))
      .handleRestartCommand(() => note('restart'))
      .handleUpdateCommand(() => note('update'))
      .connect();
    const [connection] = (await client.tunnelSessions.list()).items;
    const id = String(connection?.id);
    await client.tunnelSessions.stop(id);
    await client.tunnelSessions.restart(id);
    await client.tunnelSessions.update(id);
    await all;
    expect(called.sort()).toEqual(['restart', 'stop', 'update']);
    const { items } = await client.auditEvents.list({ filters: { type: 'agent_command' } });
    expect(items.map(({ object_id, by, after }) => [object_id, by.slice(0, 3), after?.command])).toEqual(
      ['update', 'restart', 'stop'].map((command) => [id, 'ak_', command]),
    );
    await expect(client.tunnelSessions.stop('ts_32ELFiDEVP0MLVPxhqpmwXCxldd')).rejects.toMatchObject({ status: 404 });
  });
});

it('an agent that cannot restart on request is disconnected instead', async () => {
  const session = await connect((await account()).authtoken);
  await serve(session, 'a.localhost');
  const [connection] = (await client.tunnelSessions.list()).items;
  await client.tunnelSessions.restart(String(connection?.id));
  await expect.poll(async () => (await client.endpoints.list()).items, { timeout: 20_000 }).toEqual([]);
});

it('a restart of the gateway keeps domains, authtokens and API keys', async () => {
  const dataDir = temporaryFolder();
  const first = await startTestGateway({ dataDir });
  client = await managementClientOf(first);
  const key = await client.apiKeys.create({});
  const domain = await client.reservedDomains.create({ domain: '*.site.example.com' });
  const { authtoken } = await account(['bind:*.site.example.com']);
  await first.close();
  const second = await startTestGateway({ dataDir });
  onTestFinished(() => second.close());
  const again = new ManagementClient({ baseUrl: second.apiUrl, apiKey: String(key.token), ca: second.sessionCa });
  expect(await again.reservedDomains.get(domain.id)).toMatchObject({ domain: '*.site.example.com' });
  await serve(await connect(authtoken, second), 'cam.site.example.com');
  const answer = await getPublic(second, 'https://cam.site.example.com/');
  expect(answer).toMatchObject({ status: 200, body: 'from the device' });
});
