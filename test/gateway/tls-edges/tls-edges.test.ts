import { X509Certificate } from 'node:crypto';
import { text } from 'node:stream/consumers';
import type { TLSSocket } from 'node:tls';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { type Issued, issueCertificate } from '../../support/certificates.ts';
import { startTestGateway } from '../../support/gateway.ts';
import { closeOf } from '../../support/until.ts';
import { EdgeScene } from './edge-scene.ts';

let scene: EdgeScene;
let host: string;
beforeAll(async () => {
  scene = await EdgeScene.start();
});
afterAll(() => scene.close());
beforeEach(() => {
  host = scene.name();
});

const AT_EDGE = { tls_termination: { terminate_at: 'edge' } };
const shows = (socket: TLSSocket, { certificatePem }: Issued) =>
  socket.getPeerX509Certificate()?.fingerprint256 === new X509Certificate(certificatePem).fingerprint256;
const trusting = () => ({ ca: scene.gateway.sessionCa, rejectUnauthorized: true });
const put = (edge: string, module: string, body: object) => scene.change('PUT', `/edges/tls/${edge}/${module}`, body);

describe('TLS termination', () => {
  it('is left to the upstream without the module, and with terminate_at `upstream`', async () => {
    const edge = await scene.edge(host);
    await scene.tunnel(host, { tls: true });
    expect(shows(await scene.connect(host), scene.device)).toBe(true);
    await put(edge, 'tls_termination', { terminate_at: 'upstream' });
    expect(shows(await scene.connect(host), scene.device)).toBe(true);
    expect(await scene.answer(host)).toBe('hello me');
  });

  it('starts with the next connection, leaves open ones alone, and can be disabled', async () => {
    const edge = await scene.edge(host, AT_EDGE);
    await scene.tunnel(host);
    expect(await scene.answer(host, trusting())).toBe('hello me');
    const open = await scene.connect(host);
    await put(edge, 'tls_termination', { terminate_at: 'edge', enabled: false });
    // Now the upstream would have to speak TLS, and does not.
    expect(await scene.answer(host)).toBe('');
    open.end('still here');
    expect(await text(open)).toBe('hello still here');
  });

  it('accepts `min_version` and later', async () => {
    const edge = await scene.edge(host, AT_EDGE);
    await scene.tunnel(host);
    const old = { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT:@SECLEVEL=0' } as const;
    const answers = async () => [
      await scene.answer(host, old),
      await scene.answer(host, { maxVersion: 'TLSv1.2' }),
      await scene.answer(host),
    ];
    expect(await answers()).toEqual(['', 'hello me', 'hello me']);
    await put(edge, 'tls_termination', { terminate_at: 'edge', min_version: '1.3' });
    expect(await answers()).toEqual(['', '', 'hello me']);
    await put(edge, 'tls_termination', { terminate_at: 'edge', min_version: '1.0' });
    expect(await answers()).toEqual(['hello me', 'hello me', 'hello me']);
  });

  it('presents the certificate of the reserved domain', async () => {
    const mine = await issueCertificate({ subject: 'CN=mine', names: ['shop.example.com'] });
    const certificate_id = await scene.create('/tls_certificates', {
      certificate_pem: mine.certificatePem,
      private_key_pem: mine.privateKeyPem,
    });
    await scene.create('/reserved_domains', { domain: 'shop.example.com', certificate_id });
    await scene.edge('shop.example.com', AT_EDGE);
    await scene.tunnel('shop.example.com');
    expect(shows(await scene.connect('shop.example.com'), mine)).toBe(true);
  });
});

describe('IP restriction', () => {
  it('combines the rules of its policies, applies changes, and can be disabled', async () => {
    const rule = (ip_policy_id: string, action: string, cidr: string) =>
      scene.create('/ip_policy_rules', { ip_policy_id, action, cidr });
    const [allowing, denying] = [await scene.create('/ip_policies', {}), await scene.create('/ip_policies', {})];
    const ip_policy_ids = [allowing, denying];
    const edge = await scene.edge(host, { ...AT_EDGE, ip_restriction: { ip_policy_ids } });
    await scene.tunnel(host);
    expect(await scene.answer(host)).toBe('');
    await rule(allowing, 'allow', '127.0.0.0/8');
    expect(await scene.answer(host)).toBe('hello me');
    const denial = await rule(denying, 'deny', '127.0.0.1/32');
    expect(await scene.answer(host)).toBe('');
    await put(edge, 'ip_restriction', { enabled: false, ip_policy_ids });
    expect(await scene.answer(host)).toBe('hello me');
    await put(edge, 'ip_restriction', { ip_policy_ids });
    expect(await scene.answer(host)).toBe('');
    await scene.change('DELETE', `/ip_policy_rules/${denial}`);
    expect(await scene.answer(host)).toBe('hello me');
  });

  it('rejects before the handshake, also when TLS passes through', async () => {
    const ip_policy_ids = [await scene.create('/ip_policies', {})];
    await scene.edge(host, { ip_restriction: { ip_policy_ids } });
    await scene.tunnel(host, { tls: true });
    await expect(scene.connect(host)).rejects.toThrow(/ECONNRESET|disconnected/);
  });
});

describe('mutual TLS', () => {
  it('accepts clients verified by one of the authorities, and all clients when disabled', async () => {
    const [fleet, people, other] = await Promise.all(
      ['Fleet', 'People', 'Other'].map((name) => issueCertificate({ subject: `CN=${name}`, ca: true })),
    );
    if (!fleet || !people || !other) throw new Error('no authorities');
    const certificate_authority_ids = await Promise.all(
      [fleet, people].map(({ certificatePem }) => scene.create('/certificate_authorities', { ca_pem: certificatePem })),
    );
    const clients = await Promise.all(
      [fleet, people, other].map((issuer) => issueCertificate({ subject: 'CN=c', issuer })),
    );
    // Mutual TLS implies a handshake at the edge.
    const edge = await scene.edge(host, { mutual_tls: { certificate_authority_ids } });
    await scene.tunnel(host);
    const answers = async () =>
      Promise.all([
        ...clients.map(({ certificatePem: cert, privateKeyPem: key }) => scene.answer(host, { cert, key })),
        scene.answer(host),
      ]);
    expect(await answers()).toEqual(['hello me', 'hello me', '', '']);
    await put(edge, 'mutual_tls', { certificate_authority_ids: certificate_authority_ids.slice(1) });
    expect(await answers()).toEqual(['', 'hello me', '', '']);
    await put(edge, 'tls_termination', { terminate_at: 'edge' });
    await put(edge, 'mutual_tls', { enabled: false, certificate_authority_ids });
    expect(await answers()).toEqual(['hello me', 'hello me', 'hello me', 'hello me']);
  });
});

describe('a traffic policy', () => {
  const deny = (...expressions: string[]) =>
    JSON.stringify({ on_tcp_connect: [{ expressions, actions: [{ type: 'deny' }] }] });

  it('runs after the handshake, and can be disabled', async () => {
    const value = deny("conn.tls.version == '1.2'", "endpoint.protocol == 'tls'");
    const edge = await scene.edge(host, { ...AT_EDGE, traffic_policy: { value } });
    await scene.tunnel(host);
    expect(await scene.answer(host, { maxVersion: 'TLSv1.2' })).toBe('');
    expect(await scene.answer(host)).toBe('hello me');
    await put(edge, 'traffic_policy', { enabled: false, value });
    expect(await scene.answer(host, { maxVersion: 'TLSv1.2' })).toBe('hello me');
    await put(edge, 'traffic_policy', { value: deny() });
    expect(await scene.answer(host)).toBe('');
    await scene.change('DELETE', `/edges/tls/${edge}/traffic_policy`);
    expect(await scene.answer(host)).toBe('hello me');
  });

  it('can forward connections to an internal endpoint instead of the backend', async () => {
    const name = host.replace('.localhost', '.internal');
    const forward = { type: 'forward-internal', config: { url: `tls://${name}` } };
    await scene.edge(host, {
      ...AT_EDGE,
      traffic_policy: { value: JSON.stringify({ on_tcp_connect: [{ actions: [forward] }] }) },
    });
    await scene.tunnel(host, { says: 'backend' });
    expect(await scene.answer(host)).toBe('');
    const listener = await scene.session.tlsEndpoint().binding('internal').domain(name).listen(false);
    listener.forward(`tcp://${await scene.service({ says: 'internal' })}`).catch(() => {});
    expect(await scene.answer(host)).toBe('internal me');
  });

  it('forwards no connection to an internal endpoint without the client certificate that it demands', async () => {
    const name = host.replace('.localhost', '.internal');
    const ca = await issueCertificate({ subject: 'CN=Fleet', ca: true });
    const client = await issueCertificate({ subject: 'CN=camera', issuer: ca });
    const known = { cert: client.certificatePem, key: client.privateKeyPem };
    const config = { mutual_tls_certificate_authorities: [ca.certificatePem] };
    const rules = (action: object) => JSON.stringify({ on_tcp_connect: [{ actions: [action] }] });
    const inner = scene.session.tlsEndpoint().binding('internal').domain(name);
    const listener = await inner.trafficPolicy(rules({ type: 'terminate-tls', config })).listen(false);
    listener.forward(`tcp://${await scene.service({ says: 'internal' })}`).catch(() => {});
    const forward = { type: 'forward-internal', config: { url: `tls://${name}` } };
    const edge = await scene.edge(host, { ...AT_EDGE, traffic_policy: { value: rules(forward) } });
    expect(await scene.answer(host, known)).toBe('');
    const id = await scene.create('/certificate_authorities', { ca_pem: ca.certificatePem });
    await scene.change('PATCH', `/edges/tls/${edge}`, { mutual_tls: { certificate_authority_ids: [id] } });
    expect(await scene.answer(host)).toBe('');
    expect(await scene.answer(host, known)).toBe('internal me');
  });

  it('sees the ClientHello when TLS passes through', async () => {
    await scene.edge(host, { traffic_policy: { value: deny(`conn.tls.sni == '${host}'`, "conn.tls.version == ''") } });
    await scene.tunnel(host, { tls: true });
    expect(await scene.answer(host)).toBe('');
  });
});

describe('a tunnel group', () => {
  it('distributes connections over the online tunnels with all its labels', async () => {
    await scene.edge(host, AT_EDGE);
    expect(await scene.answer(host)).toBe('');
    const [one] = [await scene.tunnel(host, { says: 'one' }), await scene.tunnel(host, { says: 'two' })];
    await scene.tunnel(`other.${host}`, { says: 'other' });
    const answers = async () => (await Promise.all(Array.from({ length: 6 }, () => scene.answer(host)))).sort();
    expect(await answers()).toEqual([...Array(3).fill('one me'), ...Array(3).fill('two me')]);
    await one?.close();
    expect(await answers()).toEqual(Array(6).fill('two me'));
  });

  it('follows changes of the backend, and rejects connections when disabled', async () => {
    const edge = await scene.edge(host, AT_EDGE);
    await scene.tunnel(host, { says: 'first' });
    await scene.tunnel(`${host}.second`, { says: 'second' });
    const { backend } = (await scene.change('GET', `/edges/tls/${edge}`)) as { backend: { backend: { id: string } } };
    expect(await scene.answer(host)).toBe('first me');
    await scene.change('PATCH', `/backends/tunnel_group/${backend.backend.id}`, { labels: { host: `${host}.second` } });
    expect(await scene.answer(host)).toBe('second me');
    const backend_id = await scene.create('/backends/tunnel_group', { labels: { host } });
    await put(edge, 'backend', { backend_id });
    expect(await scene.answer(host)).toBe('first me');
    await put(edge, 'backend', { backend_id, enabled: false });
    expect(await scene.answer(host)).toBe('');
    await put(edge, 'backend', { backend_id });
    await scene.change('DELETE', `/backends/tunnel_group/${backend_id}`);
    expect(await scene.answer(host)).toBe('');
  });
});

describe('a fixed response', () => {
  async function ask(head = `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`): Promise<string> {
    const socket = await scene.connect(host, { ...trusting(), ALPNProtocols: ['h2', 'http/1.1'] });
    socket.write(head);
    return text(socket);
  }

  it('omits headers that contradict its framing', async () => {
    const headers = { Trailer: 'x-sum', 'Transfer-Encoding': 'gzip', 'Content-Length': '9', 'X-Kind': 'teapot' };
    const backend_id = await scene.create('/backends/http_response', { body: 'tea', headers });
    await scene.edge(host, { backend: { backend_id } });
    const answer = await ask();
    expect(answer).toMatch(/^HTTP\/1\.1 200 .*\r\nx-kind: teapot\r\n.*\r\n\r\ntea$/s);
    expect(answer).toContain('content-length: 3\r\n');
    expect(answer).not.toMatch(/trailer|transfer-encoding/i);
  });

  it('answers every request until it is changed', async () => {
    const teapot = { body: 'short and stout', headers: { 'X-Kind': 'teapot' }, status_code: 418 };
    const backend_id = await scene.create('/backends/http_response', teapot);
    const edge = await scene.edge(host, { backend: { backend_id } });
    const answer = await ask();
    expect(answer).toMatch(/^HTTP\/1\.1 418 .*\r\nx-kind: teapot\r\n.*\r\n\r\nshort and stout$/s);
    expect(answer).toContain('content-length: 15\r\n');
    expect(await ask(`CONNECT ${host}:443 HTTP/1.1\r\nHost: ${host}\r\n\r\n`)).toMatch(/^HTTP\/1\.1 400 /);
    const post = `POST /brew HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 6\r\n\r\ncoffee`;
    expect(await ask(post)).toMatch(/^HTTP\/1\.1 418 .*short and stout$/s);
    await scene.change('PATCH', `/backends/http_response/${backend_id}`, { body: 'later', status_code: 503 });
    expect(await ask()).toMatch(/^HTTP\/1\.1 503 .*later$/s);
    await put(edge, 'backend', { backend_id, enabled: false });
    expect(await ask().catch(() => '')).toBe('');
  });
});

describe('a hostport', () => {
  it('may be a wildcard; more specific edges and endpoints take precedence', async () => {
    const site = `site${host}`;
    await scene.edge(`*.${site}`, AT_EDGE);
    await scene.edge(`front.${site}`, AT_EDGE);
    await scene.tunnel(`*.${site}`, { says: 'any' });
    await scene.tunnel(`front.${site}`, { says: 'front' });
    expect(await scene.answer(`cam.${site}`)).toBe('any me');
    expect(await scene.answer(`a.cam.${site}`)).toBe('any me');
    expect(await scene.answer(`front.${site}`)).toBe('front me');
    const listener = await scene.session.httpEndpoint().domain(`cam.${site}`).listen(false);
    expect(await scene.answer(`cam.${site}`)).not.toContain('any');
    await listener.close();
    expect(await scene.answer(`cam.${site}`)).toBe('any me');
  });

  it('that is removed is no longer served, keeps open connections, and can be reused', async () => {
    const edge = await scene.edge(host, AT_EDGE);
    await scene.tunnel(host, { says: 'old' });
    const open = await scene.connect(host);
    await scene.change('PATCH', `/edges/tls/${edge}`, { hostports: [] });
    expect(await scene.answer(host)).not.toContain('old');
    const backend_id = await scene.create('/backends/tunnel_group', { labels: { host: 'new' } });
    const next = await scene.create('/edges/tls', { hostports: [`${host}:443`], backend: { backend_id }, ...AT_EDGE });
    await scene.tunnel('new', { says: 'new' });
    expect(await scene.answer(host)).toBe('new me');
    await scene.change('DELETE', `/edges/tls/${next}`);
    expect(await scene.answer(host)).not.toContain('new');
    open.end('me');
    expect(await text(open)).toBe('old me');
  });

  it('is listed among the online endpoints while it is served and leads somewhere', async () => {
    const edge = await scene.edge(host, { description: 'front', metadata: '{}' });
    const listed = async () => {
      const { endpoints } = (await scene.change('GET', '/endpoints')) as { endpoints: Record<string, unknown>[] };
      return endpoints.filter((endpoint) => endpoint.host === host);
    };
    const [endpoint, ...more] = await listed();
    expect(more).toEqual([]);
    expect(endpoint).toMatchObject({
      id: expect.stringMatching(/^ep_[0-9A-Za-z]{27}$/),
      type: 'edge',
      proto: 'tls',
      hostport: `${host}:443`,
      url: `tls://${host}`,
      edge: { id: edge },
      description: 'front',
      metadata: '{}',
    });
    expect(await scene.change('GET', `/endpoints/${endpoint?.id}`)).toEqual(endpoint);
    await scene.change('DELETE', `/edges/tls/${edge}/backend`);
    expect(await listed()).toEqual([]);
    const policy = JSON.stringify({
      on_tcp_connect: [{ actions: [{ type: 'forward-internal', config: { url: 'tls://a.internal' } }] }],
    });
    await scene.change('PUT', `/edges/tls/${edge}/traffic_policy`, { value: policy });
    expect(await listed()).toHaveLength(1);
    await scene.change('DELETE', `/edges/tls/${edge}`);
    expect(await listed()).toEqual([]);
  });

  it('is served again after a restart', async () => {
    // A separate gateway: the second one replaces the authtoken of the first.
    const first = await EdgeScene.start();
    onTestFinished(() => first.close());
    await first.edge(host, { tls_termination: { terminate_at: 'edge', min_version: '1.3' } });
    const { dataDir } = first.gateway;
    const second = await startTestGateway({ dataDir });
    const { httpsPort: port } = second;
    try {
      await expect(first.connect(host, { port, maxVersion: 'TLSv1.2' })).rejects.toThrow(/version/);
    } finally {
      await second.close();
    }
  });
});

it('connections without a ClientHello or host name reach no edge', async () => {
  await scene.edge(host, AT_EDGE);
  const socket = await scene.connect('', { servername: '' });
  socket.write('GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
  expect(await text(socket)).toContain('ERR_NGROK_3200');
  await closeOf(socket);
});
