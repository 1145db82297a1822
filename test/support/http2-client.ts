import { once } from 'node:events';
import { type ClientHttp2Session, type ClientHttp2Stream, connect, type IncomingHttpHeaders } from 'node:http2';
import { connect as connectTls } from 'node:tls';
import { collect } from './edge.ts';

export interface Http2Answer {
  headers: IncomingHttpHeaders;
  trailers: IncomingHttpHeaders;
  body: string;
}

/** An HTTP/2 connection to the public TLS port of an edge; the caller destroys it. */
export async function openHttp2(
  { httpsPort, ca }: { httpsPort: number; ca: { caPem: string } },
  host: string,
): Promise<ClientHttp2Session> {
  const socket = connectTls({
    host: '127.0.0.1',
    port: httpsPort,
    servername: host,
    ca: ca.caPem,
    ALPNProtocols: ['h2', 'http/1.1'],
  });
  await once(socket, 'secureConnect');
  if (socket.alpnProtocol !== 'h2') throw new Error(`${host} speaks ${socket.alpnProtocol}`);
  // As browsers, it sends long heads; by default, Node does not.
  const session = connect(`https://${host}`, { createConnection: () => socket, maxSendHeaderBlockLength: 1_048_576 });
  session.on('error', () => {});
  return session;
}

/** Waits for the complete response on a stream. */
export async function answerOn(stream: ClientHttp2Stream): Promise<Http2Answer> {
  let trailers: IncomingHttpHeaders = {};
  stream.on('trailers', (received) => {
    trailers = received;
  });
  const [headers] = (await once(stream, 'response')) as [IncomingHttpHeaders];
  const body = (await collect(stream)).toString();
  return { headers, trailers, body };
}

/** Sends a request, optionally with a body. */
export function askHttp2(
  session: ClientHttp2Session,
  headers: Record<string, string>,
  body?: string | Buffer,
): Promise<Http2Answer> {
  const stream = session.request({ ':path': '/', ...headers }, { endStream: body === undefined });
  if (body !== undefined) stream.end(body);
  return answerOn(stream);
}
