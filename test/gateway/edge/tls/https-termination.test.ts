import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { connect } from 'node:net';
import { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Issued, issueCertificate } from '../../../support/certificates.ts';
import { inRecords } from '../../../support/tls-records.ts';
import { PolicyScene } from '../proxy/policy-scene.ts';

/** The options of terminate-tls at https endpoints. */
let scene: PolicyScene;
let ca: Issued;
let camera: Issued;
beforeAll(async () => {
  scene = await PolicyScene.start();
  ca = await issueCertificate({ subject: 'CN=Fleet', ca: true });
  camera = await issueCertificate({ subject: 'CN=camera 7', issuer: ca });
});
afterAll(() => scene.close());

let names = 0;
async function bind(config: object, more: object = {}): Promise<string> {
  const domain = `h${++names}.localhost`;
  const actions = [
    { type: 'log', config: { metadata: { domain } } },
    { type: 'terminate-tls', config },
  ];
  await scene.bind({ on_tcp_connect: [{ actions }], ...more }, { scheme: 'HTTPS', domain });
  return domain;
}

interface Visited {
  status: number | undefined;
  body: string;
  certificate: X509Certificate | undefined;
  session: Buffer | undefined;
  resumed: boolean;
}

async function openTls(host: string, options: ConnectionOptions = {}): Promise<Visited> {
  const target = { host: '127.0.0.1', port: scene.gateway.httpsPort, servername: host, rejectUnauthorized: false };
  const req = request({ ...target, agent: false, headers: { host }, ...options });
  req.end();
  const [res] = (await once(req, 'response')) as [IncomingMessage];
  const socket = res.socket as TLSSocket;
  const facts = { certificate: socket.getPeerX509Certificate(), session: socket.getSession() };
  return { status: res.statusCode, resumed: socket.isSessionReused(), ...facts, body: await text(res) };
}
const asCamera = () => ({ cert: camera.certificatePem, key: camera.privateKeyPem });

it.each([
  ['GET / HTTP/1.1\r\nHost: cam.localhost:8443\r\n\r\n', '<a href="https://cam.localhost:8443/">'],
  ['GET / HTTP/1.1\r\nHost: "><script>alert(1)</script>\r\n\r\n', 'Open a URL that starts with https:// instead'],
  ['POST /x HTTP/1.0\r\n\r\n', 'Open a URL that starts with https:// instead'],
])('plain HTTP at the port for TLS is answered with a page that says so: %j', async (sent, link) => {
  const socket = connect(scene.gateway.httpsPort, '127.0.0.1');
  socket.write(sent);
  const answer = await text(socket);
  expect(answer).toMatch(/^HTTP\/1\.1 400 Bad Request\r\nContent-Type: text\/html/);
  expect(answer).toContain('<h1>This port needs HTTPS</h1>');
  expect(answer).toContain(link);
  expect(answer).not.toContain('<script');
});

it('what is neither TLS nor HTTP is answered with an alert', async () => {
  const socket = connect(scene.gateway.httpsPort, '127.0.0.1');
  socket.write('SSH-2.0-OpenSSH_9.2p1\r\n');
  expect((await text(socket)).charCodeAt(0)).toBe(0x15);
});

it('terminate-tls accepts only the allowed TLS versions', async () => {
  const host = await bind({ min_version: '1.3' });
  await expect(openTls(host, { maxVersion: 'TLSv1.2' })).rejects.toThrow(/version/);
  expect((await openTls(host)).status).toBe(200);
});

it('terminate-tls accepts no old version in a ClientHello of many records', async () => {
  const host = await bind({ min_version: '1.3' });
  const socket = connect(scene.gateway.httpsPort, '127.0.0.1');
  const wire = new Duplex({
    read: () => {},
    write: (chunk: Buffer, _, done) => {
      wire._write = (later, encoding, callback) => void socket.write(later, encoding as BufferEncoding, callback);
      socket.write(inRecords(chunk, Math.ceil(chunk.length / 40)), done);
    },
  });
  socket.on('data', (bytes) => wire.push(bytes)).on('close', () => wire.push(null));
  const client = connectTls({ socket: wire, servername: host, maxVersion: 'TLSv1.2', rejectUnauthorized: false });
  await expect(once(client, 'secureConnect').finally(() => socket.destroy())).rejects.toThrow();
});

it('terminate-tls presents its own certificate', async () => {
  const host = `h${names + 1}.localhost`;
  const mine = await issueCertificate({ subject: 'CN=mine', names: [host] });
  await bind({ server_certificate: mine.certificatePem, server_private_key: mine.privateKeyPem });
  const { certificate } = await openTls(host);
  expect(certificate?.fingerprint256).toBe(new X509Certificate(mine.certificatePem).fingerprint256);
});

it('terminate-tls rejects clients without a certificate, and exposes it to later phases', async () => {
  const headers = { 'x-who': `\${conn.tls.client.subject.common_name}` };
  const on_http_request = [
    { actions: [{ type: 'add-headers', config: { headers } }] },
    { expressions: ["actions.ngrok.terminate_tls.client.subject == 'CN=thief'"], actions: [{ type: 'deny' }] },
  ];
  const host = await bind({ mutual_tls_certificate_authorities: [ca.certificatePem] }, { on_http_request });
  const { status, body } = await openTls(host, asCamera());
  expect(status).toBe(200);
  expect(JSON.parse(body).headers).toMatchObject({ 'x-who': 'camera 7' });
  const thief = await issueCertificate({ subject: 'CN=thief', issuer: ca });
  expect((await openTls(host, { cert: thief.certificatePem, key: thief.privateKeyPem })).status).toBe(403);
  await expect(openTls(host)).rejects.toThrow();
  const other = await issueCertificate({ subject: 'CN=other' });
  await expect(openTls(host, { cert: other.certificatePem, key: other.privateKeyPem })).rejects.toThrow();
});

it('a resumed session of TLS 1.2 keeps the name of its ClientHello', async () => {
  const denySni = (name: string) => ({ expressions: [`conn.tls.sni == '${name}'`], actions: [{ type: 'deny' }] });
  const mutual = { mutual_tls_certificate_authorities: [ca.certificatePem] };
  const open = await bind(mutual);
  const denied = await bind({}, { on_http_request: [denySni(`h${names + 1}.localhost`)] });
  for (const [host, status] of [
    [open, 200],
    [denied, 403],
  ] as const) {
    let session: Buffer | undefined;
    const visit = async (more: ConnectionOptions = {}) => {
      const visited = await openTls(host, { maxVersion: 'TLSv1.2', ...asCamera(), ...more });
      session = visited.session;
      return visited;
    };
    expect(await visit()).toMatchObject({ status, resumed: false });
    expect(await visit({ session })).toMatchObject({ status, resumed: true });
  }
});

it('conn.tls.sni is in lower case in every phase', async () => {
  const name = `h${names + 1}.localhost`;
  const expressions = [`conn.tls.sni == '${name}'`];
  await bind({}, { on_http_request: [{ expressions, actions: [{ type: 'deny' }] }] });
  expect((await openTls(name, { servername: name.toUpperCase() })).status).toBe(403);
});

it('an endpoint that demands certificates of an unknown authority cannot be bound', async () => {
  const bound = bind({ mutual_tls_certificate_authorities: ['ca_2abcdefghijklmnopqrstuvwxyz'] });
  await expect(bound).rejects.toThrow(/ERR_NGROK_9026|no certificate authority has the id/);
});

it('requests on a connection for another name get a 421', async () => {
  const host = await bind({ mutual_tls_certificate_authorities: [ca.certificatePem] });
  const open = await bind({});
  expect((await openTls(open)).status).toBe(200);
  expect((await openTls(host, { servername: open })).status).toBe(421);
  expect((await openTls(host, { servername: open, ...asCamera() })).status).toBe(421);
});

it('on_tcp_connect runs once per connection, before the handshake', async () => {
  const host = await bind({}, {});
  const logged = () => scene.lines.filter(({ metadata }) => (metadata as { domain?: string })?.domain === host).length;
  expect((await openTls(host)).status).toBe(200);
  expect(logged()).toBe(1);
  await expect(
    openTls(host, { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT:@SECLEVEL=0' }),
  ).rejects.toThrow();
  expect(logged()).toBe(2);
});

it('a connection that on_tcp_connect rejects gets no handshake', async () => {
  const domain = `h${++names}.localhost`;
  const actions = [{ type: 'terminate-tls', config: {} }, { type: 'close-connection' }];
  await scene.bind({ on_tcp_connect: [{ actions }] }, { scheme: 'HTTPS', domain });
  await expect(openTls(domain)).rejects.toThrow(/ECONNRESET|socket hang up|disconnected/);
});
