import { once } from 'node:events';
import type { Listener, Session } from '@ngrok/ngrok';
import { describe, expect, it } from 'vitest';
import type { AgentUpstream, ClientInfo } from '../../../src/gateway/endpoints/online-endpoint.ts';
import { issueCredential } from '../../../src/gateway/store/tokens.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { COSTLY_KEYS, madeUpRsa, OUT_OF_RANGE, pemOf, spkiOf } from '../../support/costly-keys.ts';
import { selfSigned } from '../../support/self-signed.ts';
import { rawSession } from './raw-agent.ts';
import { SessionGateway, SilentLink, upstream } from './session-gateway.ts';

const BIND = 1;
const BIND_LABELED = 7;

const code = (errorCode: string) => expect.objectContaining({ errorCode });

/** Connects an agent whose authtoken has these ACL rules and this owner. */
async function connect(gateway: SessionGateway, acl: string[] = [], owner_id?: string): Promise<Session> {
  const { store } = gateway;
  const { token } = await store.database.write(() => issueCredential(store, { acl, ...(owner_id && { owner_id }) }));
  return gateway.agent().authtoken(token).connect();
}

async function botUser({ store }: SessionGateway): Promise<string> {
  const row = { id: store.ids.next('bot'), created_at: store.now(), name: 'site', active: true };
  await store.database.write(() => store.botUsers.insert(row));
  return row.id;
}

describe('endpoints with the same name', () => {
  it('coexist as http and https, each with its own upstream', async () => {
    const gateway = await SessionGateway.start();
    const [first, second] = [await connect(gateway), await connect(gateway)];
    await first.httpEndpoint().domain('cam.localhost').listen(false);
    await second.httpEndpoint().scheme('HTTP').domain('cam.localhost').listen(false);
    const [https, http] = gateway.endpoints.list();
    expect([https?.url, http?.url]).toEqual(['https://cam.localhost:8443', 'http://cam.localhost:8080']);
    expect(gateway.endpoints.lookup('http', 'cam.localhost')).toBe(http);
    expect(gateway.endpoints.lookup('https', 'cam.localhost')).toBe(https);
  });

  it('are refused as https and tls, whose clients share a port', async () => {
    const gateway = await SessionGateway.start();
    const session = await connect(gateway);
    await session.httpEndpoint().domain('cam.localhost').listen(false);
    await expect(session.tlsEndpoint().domain('cam.localhost').listen(false)).rejects.toEqual(code('ERR_NGROK_334'));
    await session.tlsEndpoint().domain('raw.localhost').listen(false);
    await expect(session.httpEndpoint().domain('raw.localhost').listen(false)).rejects.toEqual(code('ERR_NGROK_334'));
  });

  it('go to one agent when several bind concurrently', async () => {
    const gateway = await SessionGateway.start();
    const sessions = await Promise.all([1, 2, 3, 4].map(() => connect(gateway)));
    const bind = (session: Session) => session.httpEndpoint().domain('cam.localhost').listen(false);
    const outcomes = await Promise.allSettled(sessions.map(bind));
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    expect(gateway.endpoints.list()).toHaveLength(1);
  });
});

describe('pooled endpoints', () => {
  const pooled = (session: Session) => session.httpEndpoint().domain('pool.localhost').poolingEnabled(true);

  it('share a URL across agents and within one, and take turns until they go offline', async () => {
    const gateway = await SessionGateway.start();
    const owner = await botUser(gateway);
    const [first, second] = [await connect(gateway, [], owner), await connect(gateway, [], owner)];
    const port = (name: string) => upstream((_req, res) => res.end(name));
    const listeners: Listener[] = [];
    for (const [session, name] of [
      [first, 'one'],
      [second, 'two'],
      [second, 'three'],
    ] as const) {
      const listener = await pooled(session).listen(false);
      listener.forward(`http://127.0.0.1:${await port(name)}`).catch(() => {});
      listeners.push(listener);
    }
    const answers = async (count: number) => {
      const bodies: string[] = [];
      for (let asked = 0; asked < count; asked++)
        bodies.push((await gateway.get('pool.localhost')).split('\r\n').at(-1) ?? '');
      return bodies;
    };
    expect((await answers(3)).sort()).toEqual(['one', 'three', 'two']);
    await listeners[0]?.close();
    expect(new Set(await answers(4))).toEqual(new Set(['two', 'three']));
  });

  it('are skipped while unresponsive: a dead session costs one connection', async () => {
    const gateway = await SessionGateway.start();
    const link = await SilentLink.to(gateway.port);
    const port = await upstream((_req, res) => res.end('alive'));
    for (const session of [await gateway.agent({ port: link.port }).connect(), await gateway.agent().connect()]) {
      const listener = await pooled(session).listen(false);
      listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
    }
    for (const _ of [1, 2]) expect(await gateway.get('pool.localhost')).toContain('alive');
    link.goSilent();
    const client: ClientInfo = { address: '203.0.113.7:4567', protocol: 'https' };
    gateway.endpoints.lookup('https', 'pool.localhost')?.openStream(client).write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    for (const _ of [1, 2, 3, 4]) expect(await gateway.get('pool.localhost')).toContain('alive');
  });

  it('are skipped while their session carries as many connections as it can', async () => {
    const gateway = await SessionGateway.start(0, undefined, { limits: { connections: 4 } });
    const port = await upstream((req, res) => (req.url === '/held' ? void res.write('held') : res.end('alive')));
    for (const session of [await gateway.agent().connect(), await gateway.agent().connect()]) {
      const listener = await pooled(session).listen(false);
      listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
    }
    const [full] = gateway.endpoints.list();
    for (let held = 0; held < 4; held++) {
      const stream = full?.openStream({ address: '203.0.113.7:4567', protocol: 'https' });
      stream?.write('GET /held HTTP/1.1\r\nHost: x\r\n\r\n');
      if (stream) await once(stream, 'data');
    }
    for (const _ of [1, 2, 3, 4]) expect(await gateway.get('pool.localhost')).toContain('alive');
  });

  it.each(['another owner', 'no owner'])('are not shared with an authtoken of %s', async (whose) => {
    const gateway = await SessionGateway.start();
    const none = whose === 'no owner';
    const first = await connect(gateway, [], none ? undefined : await botUser(gateway));
    const second = await connect(gateway, [], none ? undefined : await botUser(gateway));
    await pooled(first).listen(false);
    await pooled(first).listen(false);
    await expect(pooled(second).listen(false)).rejects.toEqual(code('ERR_NGROK_334'));
    const internal = (session: Session) => session.httpEndpoint().domain('pool.internal').poolingEnabled(true);
    await internal(first).listen(false);
    await expect(internal(second).listen(false)).rejects.toEqual(code('ERR_NGROK_334'));
    expect(new Set(gateway.endpoints.list().map(({ owner }) => owner.credential.id)).size).toBe(1);
  });

  it('are refused when an endpoint without pooling is online, and vice versa', async () => {
    const gateway = await SessionGateway.start();
    const [first, second] = [await gateway.agent().connect(), await gateway.agent().connect()];
    const alone = await first.httpEndpoint().domain('pool.localhost').listen(false);
    await expect(pooled(second).listen(false)).rejects.toEqual(code('ERR_NGROK_18016'));
    await alone.close();
    await pooled(second).listen(false);
    await expect(first.httpEndpoint().domain('pool.localhost').listen(false)).rejects.toEqual(code('ERR_NGROK_18017'));
    expect(gateway.endpoints.list()).toHaveLength(1);
  });
});

describe('internal endpoints', () => {
  it('have unreserved names below .internal and are not reachable from outside', async () => {
    const gateway = await SessionGateway.start();
    const session = await connect(gateway);
    const web = await session.httpEndpoint().domain('web.internal').listen(false);
    const db = await session.tcpEndpoint().remoteAddr('db.internal:5432').binding('internal').listen(false);
    expect([web.url(), db.url()]).toEqual(['https://web.internal', 'tcp://db.internal:5432']);
    expect(gateway.endpoints.lookup('https', 'web.internal')).toBeUndefined();
    expect(gateway.endpoints.internal('https', 'web.internal', 443)?.url).toBe('https://web.internal');
    expect(gateway.endpoints.internal('tcp', 'db.internal', 5432)?.url).toBe('tcp://db.internal:5432');
    expect((await session.tlsEndpoint().binding('internal').listen(false)).url()).toMatch(
      /^tls:\/\/[a-z0-9-]+\.internal$/,
    );
  });

  it.each<[string, string, (session: Session) => Promise<Listener>]>([
    [
      'a name outside .internal',
      'ERR_NGROK_9029',
      (s) => s.httpEndpoint().domain('a.localhost').binding('internal').listen(false),
    ],
    [
      'a name below .internal with the binding public',
      'ERR_NGROK_9029',
      (s) => s.httpEndpoint().domain('a.internal').binding('public').listen(false),
    ],
    ['a wildcard', 'ERR_NGROK_9029', (s) => s.httpEndpoint().domain('*.a.internal').listen(false)],
    ['tcp without a port', 'ERR_NGROK_9035', (s) => s.tcpEndpoint().remoteAddr('a.internal').listen(false)],
    ['an unsupported binding', 'ERR_NGROK_15005', (s) => s.httpEndpoint().binding('kubernetes').listen(false)],
    [
      'a policy for clients’ connections',
      'ERR_NGROK_9026',
      (s) =>
        s
          .httpEndpoint()
          .domain('a.internal')
          .trafficPolicy('{"on_tcp_connect":[{"actions":[{"type":"deny"}]}]}')
          .listen(false),
    ],
  ])('refuse %s', async (_what, errorCode, bind) => {
    const gateway = await SessionGateway.start();
    await expect(bind(await connect(gateway))).rejects.toEqual(code(errorCode));
    expect(gateway.endpoints.list()).toEqual([]);
  });

  it('need an ACL rule that allows the name', async () => {
    const gateway = await SessionGateway.start();
    const session = await connect(gateway, ['bind:*.site.internal', 'bind:db.internal:5432']);
    await session.httpEndpoint().domain('cam.site.internal').listen(false);
    await session.tcpEndpoint().remoteAddr('db.internal:5432').listen(false);
    await expect(session.httpEndpoint().domain('cam.internal').listen(false)).rejects.toEqual(code('ERR_NGROK_316'));
    await expect(session.tcpEndpoint().remoteAddr('db.internal:22').listen(false)).rejects.toEqual(
      code('ERR_NGROK_308'),
    );
  });
});

describe('tls endpoints', () => {
  it('are refused with an invalid certificate or a key that does not match', async () => {
    const gateway = await SessionGateway.start();
    const session = await connect(gateway);
    const [one, other] = [await selfSigned(), await selfSigned()];
    for (const [cert, key] of [
      ['no PEM', one.key],
      [one.cert, other.key],
    ]) {
      const builder = session.tlsEndpoint().termination(Buffer.from(String(cert)), Buffer.from(String(key)));
      await expect(builder.listen(false)).rejects.toEqual(code('ERR_NGROK_301'));
    }
  });
});

describe('labelled tunnels', () => {
  it('are found by their labels until they are closed, and have no URL', async () => {
    const gateway = await SessionGateway.start();
    const session = await connect(gateway);
    const listener = await session.labeledListener().label('app', 'cam').label('site', 'a').metadata('m').listen(false);
    expect(listener.url()).toBeNull();
    expect(listener.labels()).toEqual({ app: 'cam', site: 'a' });
    expect(gateway.endpoints.withLabels({ app: 'cam' })).toMatchObject({ id: listener.id(), metadata: 'm' });
    expect(gateway.endpoints.list()).toEqual([]);
    await listener.close();
    expect(gateway.endpoints.withLabels({ app: 'cam' })).toBeUndefined();
  });

  it('carry traffic, and end with their session', async () => {
    const gateway = await SessionGateway.start();
    const link = await SilentLink.to(gateway.port);
    const session = await gateway.agent({ port: link.port }).connect();
    const port = await upstream((_req, res) => res.end('from the group'));
    const listener = await session.labeledListener().label('app', 'cam').listen(false);
    listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
    expect(await ask(gateway.endpoints.withLabels({ app: 'cam' }))).toContain('from the group');
    link.cut();
    await expect.poll(() => gateway.endpoints.labeled()).toEqual([]);
  });

  it('are refused without a label', async () => {
    const { agent } = await rawSession();
    expect(await agent.call(BIND_LABELED, { Labels: {} })).toEqual({ Error: expect.stringContaining('ERR_NGROK_394') });
    expect(await agent.call(BIND_LABELED, { Labels: { 'a=b': 'c' } })).toEqual({
      Error: expect.stringContaining('ERR_NGROK_301'),
    });
  });
});

async function ask(to: AgentUpstream | undefined): Promise<string> {
  const stream = to?.openStream({ address: '203.0.113.7:4567', protocol: 'https' });
  stream?.write('GET / HTTP/1.1\r\nHost: cam\r\nConnection: close\r\n\r\n');
  const chunks: Buffer[] = [];
  for await (const chunk of stream ?? []) chunks.push(chunk);
  stream?.end();
  return Buffer.concat(chunks).toString();
}

describe('the address of an endpoint', () => {
  it.each([
    ['https', { URL: 'https://a.localhost' }, 'https://a.localhost:8443'],
    ['https', { URL: 'https://a.localhost:443/' }, 'https://a.localhost:8443'],
    ['https', { URL: 'a.localhost:8443' }, 'https://a.localhost:8443'],
    ['http', { URL: 'http://a.localhost' }, 'http://a.localhost:8080'],
    ['tls', { URL: 'tls://A.Localhost' }, 'tls://a.localhost:8443'],
    ['https', { Subdomain: 'a' }, 'https://a.localhost:8443'],
    ['https', { Hostname: 'a.localhost' }, 'https://a.localhost:8443'],
    ['http', { URL: 'http://web.internal:9000' }, 'http://web.internal:9000'],
    ['tcp', { URL: 'tcp://db.internal:5432' }, 'tcp://db.internal:5432'],
  ])('of %s can be given as %j', async (Proto, Opts, URL) => {
    const { agent } = await rawSession();
    const answer = await agent.call(BIND, { Id: '', Proto, Opts });
    expect(answer).toMatchObject({ URL, Proto });
    // An SDK that reconnects sends the answer's options and token.
    const { Id, Opts: again, Extra } = answer;
    await agent.call(2, { Id });
    expect(await agent.call(BIND, { Id, Proto, Opts: again, Extra })).toMatchObject({ Id, URL, Extra });
    await agent.call(2, { Id });
    expect(await agent.call(BIND, { Id, Proto, Opts: {}, Extra })).toMatchObject({ URL });
  });

  it.each([
    ['https', { URL: 'https://a.localhost/x' }, 9037],
    ['https', { URL: 'https://invalid@a.localhost' }, 9037],
    ['https', { URL: 'https://a.localhost?x' }, 9034],
    ['https', { URL: 'tcp://a.localhost:1' }, 9036],
    ['https', { URL: 'https://a.localhost:99999' }, 9030],
    ['https', { URL: 'https://a.localhost:8444' }, 9035],
    ['https', { URL: 'https://a.localhost', Domain: 'a.localhost' }, 9021],
    ['ssh', {}, 332],
    ['https', { ProxyProto: 3 }, 301],
    ['http', { TLSTermination: { cert: '', key: '' } }, 301],
  ])('of %s is refused as %j', async (Proto, Opts, number) => {
    const { gateway, agent } = await rawSession();
    expect(await agent.call(BIND, { Id: '', Proto, Opts })).toEqual({
      Error: expect.stringMatching(new RegExp(`ERR_NGROK_${number}$`)),
    });
    expect(gateway.endpoints.list()).toEqual([]);
  });

  it.each([
    ['a large RSA key', () => pemOf(madeUpRsa(8192)), 'is an RSA key with 8192 bits; use RSA with 2048 to 4096 bits'],
    ['a long text', () => pemOf(madeUpRsa(32_768)), 'is longer than 16384 characters; use RSA with 2048'],
    ['a number out of range', () => OUT_OF_RANGE, 'is not a valid private key in PEM'],
  ])('that terminates TLS with %s as its key is refused', async (_name, key, problem) => {
    const { gateway, agent } = await rawSession();
    const { cert } = await selfSigned();
    const TLSTermination = { cert: btoa(cert), key: btoa(key()) };
    const answer = await agent.call(BIND, { Id: '', Proto: 'tls', Opts: { Domain: 'a.localhost', TLSTermination } });
    expect(answer.Error).toContain(`TLSTermination: the private key ${problem}`);
    expect(gateway.endpoints.list()).toEqual([]);
  });

  it('that terminates TLS is refused for a costly key of any certificate of its chain', async () => {
    const { gateway, agent } = await rawSession();
    const { cert, key } = await selfSigned();
    for (const [, make] of COSTLY_KEYS) {
      const { certificatePem } = await issueCertificate({ subject: 'CN=CA', ca: true, publicKey: spkiOf(make()) });
      const TLSTermination = { cert: btoa(`${cert}\n${certificatePem}`), key: btoa(key) };
      const answer = await agent.call(BIND, { Id: '', Proto: 'tls', Opts: { Domain: 'a.localhost', TLSTermination } });
      expect(answer.Error).toContain('TLSTermination: certificate 2 has');
      const MutualTLSAtEdge = { mutual_tls_ca: btoa(certificatePem) };
      const mutual = await agent.call(BIND, { Id: '', Proto: 'tls', Opts: { Domain: 'a.localhost', MutualTLSAtEdge } });
      expect(mutual.Error).toContain('MutualTLSAtEdge: certificate 1 has ');
    }
    expect(gateway.endpoints.list()).toEqual([]);
  });
});

describe('the header of a proxied connection', () => {
  const client = (protocol: ClientInfo['protocol'], passthrough?: boolean): ClientInfo => ({
    address: '203.0.113.7:4567',
    protocol,
    ...(passthrough !== undefined && { passthrough }),
  });

  it.each([
    ['https', { Proto: 'https', EdgeType: '0', PassthroughTLS: false }],
    ['http', { Proto: 'http', EdgeType: '0', PassthroughTLS: false }],
    ['tcp', { Proto: 'tcp', EdgeType: '0', PassthroughTLS: false }],
    ['tls', { Proto: 'tls', EdgeType: '0', PassthroughTLS: true }],
  ] as const)('says what kind of endpoint it came to: %s', async (Proto, members) => {
    const { gateway, agent } = await rawSession();
    const { Id } = await agent.call(BIND, { Id: '', Proto, Opts: { URL: `${Proto}://a.internal:9000` } });
    const [endpoint] = gateway.endpoints.list();
    endpoint?.openStream(client(Proto));
    expect(await agent.proxyHeader()).toEqual({ Id, ClientAddr: '203.0.113.7:4567', ...members });
  });

  it('says that the edge has terminated TLS', async () => {
    const { gateway, agent } = await rawSession();
    const { cert, key } = await selfSigned();
    const TLSTermination = { cert: Buffer.from(cert).toString('base64'), key: Buffer.from(key).toString('base64') };
    await agent.call(BIND, { Id: '', Proto: 'tls', Opts: { Domain: 'a.localhost', TLSTermination } });
    gateway.endpoints.lookup('tls', 'a.localhost')?.openStream(client('tls'));
    expect(await agent.proxyHeader()).toMatchObject({ Proto: 'tls', EdgeType: '0', PassthroughTLS: false });
  });

  it('says that the edge terminates TLS because of a policy', async () => {
    const { gateway, agent } = await rawSession();
    await agent.call(BIND, { Id: '', Proto: 'tls', Opts: { Domain: 'a.localhost' } });
    gateway.endpoints.lookup('tls', 'a.localhost')?.openStream(client('tls', false));
    expect(await agent.proxyHeader()).toMatchObject({ Proto: 'tls', EdgeType: '0', PassthroughTLS: false });
  });

  it.each([true, false])(
    'reports to a labelled tunnel whether the edge passes TLS through: %s',
    async (PassthroughTLS) => {
      const { gateway, agent } = await rawSession();
      const { Id } = await agent.call(BIND_LABELED, { Labels: { app: 'cam' } });
      gateway.endpoints.withLabels({ app: 'cam' })?.openStream(client('tls', PassthroughTLS));
      expect(await agent.proxyHeader()).toMatchObject({ Id, Proto: 'tls', EdgeType: '2', PassthroughTLS });
    },
  );
});
