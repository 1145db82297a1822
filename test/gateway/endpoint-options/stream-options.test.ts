import { type AddressInfo, connect, createServer } from 'node:net';
import { text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import type { Listener, Session } from '@ngrok/ngrok';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { issueCertificate } from '../../support/certificates.ts';
import { freePorts } from '../../support/free-ports.ts';
import { agentSession, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { listening } from '../../support/loopback.ts';
import { SilentLink } from '../sessions/session-gateway.ts';

let gateway: TestGateway;
let session: Session;
let names = 0;
/** Sends hello, then everything that it received before the end. */
const upstream = createServer({ allowHalfOpen: true }, (socket) => {
  const received: Buffer[] = [];
  socket.write('hello ');
  socket.on('data', (data) => received.push(data));
  socket.on('end', () => socket.end(Buffer.concat(received)));
  socket.on('error', () => {});
});

beforeAll(async () => {
  gateway = await startTestGateway({ tcpPorts: await freePorts(8) });
  session = await agentSession(gateway).connect();
  await listening(upstream);
});
afterAll(async () => {
  await session.close();
  await gateway.close();
  upstream.close();
});

type StreamBuilder = ReturnType<Session['tcpEndpoint']> | ReturnType<Session['tlsEndpoint']>;

/** A protocol whose connections are forwarded as bytes. */
interface Kind {
  bind(setUp: (builder: StreamBuilder) => unknown, owner?: Session): Promise<Listener>;
  /** Sends a text and returns the whole answer; empty when the connection is reset. */
  say(listener: Listener): Promise<string>;
}

async function bound(builder: StreamBuilder, setUp: (builder: StreamBuilder) => unknown): Promise<Listener> {
  setUp(builder);
  const listener = await builder.listen(false);
  listener.forward(`tcp://127.0.0.1:${(upstream.address() as AddressInfo).port}`).catch(() => {});
  return listener;
}

const urlOf = (listener: Listener) => new URL(listener.url() ?? '');

const tcp: Kind = {
  bind: (setUp, owner = session) => bound(owner.tcpEndpoint(), setUp),
  say(listener) {
    const socket = connect(Number(urlOf(listener).port), '127.0.0.1');
    socket.end('me');
    return text(socket).catch(() => '');
  },
};

const tls: Kind = {
  async bind(setUp, owner = session) {
    const domain = `s${++names}.localhost`;
    const { certificatePem, privateKeyPem } = await issueCertificate({ subject: `CN=${domain}`, names: [domain] });
    const builder = owner.tlsEndpoint().domain(domain);
    return bound(builder.termination(Buffer.from(certificatePem), Buffer.from(privateKeyPem)), setUp);
  },
  say(listener) {
    const servername = urlOf(listener).hostname;
    const socket = connectTls({ host: '127.0.0.1', port: gateway.httpsPort, servername, rejectUnauthorized: false });
    socket.end('me');
    return text(socket).catch(() => '');
  },
};

describe.each([
  ['tcp', tcp],
  ['tls', tls],
])('options of %s endpoints', (_name, { bind, say }) => {
  it('are off by default', async () => {
    expect(await say(await bind(() => {}))).toBe('hello me');
  });

  it('allow the addresses that are allowed and not denied', async () => {
    expect(await say(await bind((builder) => builder.allowCidr('127.0.0.0/8').denyCidr('10.0.0.0/8')))).toBe(
      'hello me',
    );
    expect(await say(await bind((builder) => builder.allowCidr('10.0.0.0/8')))).toBe('');
    expect(await say(await bind((builder) => builder.allowCidr('127.0.0.1/32').denyCidr('0.0.0.0/0')))).toBe('');
  });

  it('are refused for an invalid range, or when they would reject every client', async () => {
    const refused = (errorCode: string) => expect.objectContaining({ errorCode });
    await expect(bind((builder) => builder.allowCidr('all'))).rejects.toEqual(refused('ERR_NGROK_362'));
    await expect(bind((builder) => builder.denyCidr('::/0'))).rejects.toEqual(refused('ERR_NGROK_393'));
  });

  it('send the client’s address to the upstream in a PROXY header', async () => {
    const first = await say(await bind((builder) => builder.proxyProto('1')));
    expect(first).toMatch(/^hello PROXY TCP4 127\.0\.0\.1 127\.0\.0\.1 \d+ \d+\r\nme$/);
    const second = await say(await bind((builder) => builder.proxyProto('2')));
    expect(second).toContain('hello \r\n\r\n\0\r\nQUIT\n');
  });

  it('stay in force when the agent reconnects', async () => {
    const link = await SilentLink.to(gateway.sessionPort);
    const builder = agentSession(gateway, `127.0.0.1:${link.port}`).handleDisconnection(() => true);
    const reconnecting = await builder.connect();
    const listener = await bind((each) => each.allowCidr('10.0.0.0/8'), reconnecting);
    const open = await bind((each) => each.proxyProto('1'), reconnecting);
    let missing = 2;
    const back = new Promise<void>((resolve) => {
      gateway.endpoints.on('added', () => --missing === 0 && resolve());
    });
    link.cut();
    await back;
    expect(await say(listener)).toBe('');
    expect(await say(open)).toMatch(/^hello PROXY TCP4 /);
    await reconnecting.close();
  });
});
