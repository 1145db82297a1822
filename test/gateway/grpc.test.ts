import { once } from 'node:events';
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  createSecureServer,
  createServer,
  type Http2SecureServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import type { Session } from '@ngrok/ngrok';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openLocalCa } from '../../src/gateway/certificates/local-ca/local-ca.ts';
import { collect } from '../support/edge.ts';
import { agentSession, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { openHttp2 } from '../support/http2-client.ts';
import { silentLog } from '../support/silent-log.ts';
import { sharedFolder } from '../support/temporary-folder.ts';

const folder = sharedFolder();
let gateway: TestGateway;
let agent: Session;
let upstream: Http2Server;
let secureUpstream: Http2SecureServer;
/** RST_STREAM codes that the upstream received. */
const ended: Promise<number>[] = [];

beforeAll(async () => {
  const ca = await openLocalCa(folder, silentLog);
  // The SDK reads the system's CAs on first use.
  process.env.SSL_CERT_FILE = ca.caFile;
  gateway = await startTestGateway();
  agent = await agentSession(gateway).connect();
  upstream = createServer();
  secureUpstream = createSecureServer(await ca.issue(['localhost']));
  for (const server of [upstream, secureUpstream]) {
    server.on('stream', serveCall).on('sessionError', () => {});
    server.listen(0, 'localhost');
    await once(server, 'listening');
  }
});
afterAll(async () => {
  await agent.close();
  await gateway.close();
  upstream.close();
  secureUpstream.close();
});

/** One gRPC message: uncompressed, with its length. */
function message(text: string): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(text.length, 1);
  return Buffer.concat([prefix, Buffer.from(text)]);
}

function messagesIn(bytes: Buffer): string[] {
  const texts: string[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    texts.push(bytes.toString('utf8', at + 5, end));
    at = end;
  }
  return texts;
}

function serveCall(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
  stream.on('error', () => {});
  ended.push(new Promise((resolve) => stream.once('close', () => resolve(stream.rstCode ?? 0))));
  const type = { ':status': 200, 'content-type': 'application/grpc' };
  if (headers[':path'] === '/Unknown' || headers.te !== 'trailers') {
    stream.respond({ ...type, 'grpc-status': '12', 'grpc-message': 'no such method' }, { endStream: true });
    return;
  }
  stream.respond(type, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
  if (headers[':path'] === '/Watch') stream.write(message('first'));
  else if (headers[':path'] === '/List') {
    for (const text of ['one', 'two']) stream.write(message(text));
    stream.end(message('three'));
  } else stream.pipe(stream);
}

function call(session: ClientHttp2Session, path: string): ClientHttp2Stream {
  return session.request({ ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' });
}

const trailersOf = async (stream: ClientHttp2Stream) => ((await once(stream, 'trailers')) as [IncomingHttpHeaders])[0];

describe.each([
  ['without TLS', 'http', 'grpc.localhost'],
  ['with TLS', 'https', 'grpcs.localhost'],
])('gRPC through the real SDK to an upstream %s', (_how, scheme, host) => {
  let session: ClientHttp2Session;

  beforeAll(async () => {
    const { port } = (scheme === 'http' ? upstream : secureUpstream).address() as AddressInfo;
    const builder = agent.httpEndpoint().domain(host).appProtocol('http2');
    const listener = await builder.forwardsTo(`${scheme}://127.0.0.1:${port}`).listen(false);
    listener.forward(`${scheme}://localhost:${port}`).catch(() => {});
    session = await openHttp2({ httpsPort: gateway.httpsPort, ca: { caPem: gateway.sessionCa } }, host);
  });
  afterAll(() => session.destroy());

  it('makes a unary call', async () => {
    const stream = call(session, '/Echo');
    const trailers = trailersOf(stream);
    stream.end(message('hello'));
    expect(messagesIn(await collect(stream))).toEqual(['hello']);
    expect((await trailers)['grpc-status']).toBe('0');
  });

  it('receives a server stream', async () => {
    const stream = call(session, '/List');
    const trailers = trailersOf(stream);
    stream.end(message('go'));
    expect(messagesIn(await collect(stream))).toEqual(['one', 'two', 'three']);
    expect((await trailers)['grpc-status']).toBe('0');
  });

  it('streams in both directions', async () => {
    const stream = call(session, '/Echo');
    const trailers = trailersOf(stream);
    for (const text of ['one', 'two', 'three']) {
      const answer = once(stream, 'data');
      stream.write(message(text));
      expect(messagesIn((await answer)[0] as Buffer)).toEqual([text]);
    }
    stream.end();
    expect((await trailers)['grpc-status']).toBe('0');
  });

  it('receives an error that consists of trailers only, in one frame', async () => {
    const stream = call(session, '/Unknown');
    stream.end(message('hello'));
    const [headers, flags] = await once(stream, 'response');
    expect([headers['grpc-status'], headers['grpc-message'], flags & 1]).toEqual(['12', 'no such method', 1]);
  });

  it('cancels a call at the upstream', async () => {
    const before = ended.length;
    const stream = call(session, '/Watch');
    await once(stream, 'data');
    stream.close(8);
    expect(await ended[before]).toBe(8);
  });
});

it('a gRPC call gets 502 when the upstream is unreachable', async () => {
  const host = 'nowhere.localhost';
  const listener = await agent.httpEndpoint().domain(host).appProtocol('http2').listen(false);
  listener.forward('http://127.0.0.1:1').catch(() => {});
  const session = await openHttp2({ httpsPort: gateway.httpsPort, ca: { caPem: gateway.sessionCa } }, host);
  const stream = call(session, '/Echo');
  stream.end(message('hello'));
  const [headers] = await once(stream, 'response');
  expect([headers[':status'], headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_8012']);
  session.destroy();
});
