import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import type { SdkServer } from './gateway-relay.ts';
import { makeRelayCertificate } from './relay-certificate.ts';

/** Frames of muxado: 4 bits of type and 4 of flags follow 24 of length, then 4 bytes of stream id, then the body. */
const HEADER_LENGTH = 8;
const DATA = 1;
const GOAWAY = 3;
const FIN = 0x1;
const SYN = 0x2;
/** More than any request made here. */
const MAX_BODY = 4096;

/** A WNDINC of 1 for a stream that does not exist, which agents ignore. */
const NUDGE = Buffer.from([0, 0, 4, 0x20, 0, 0, 0, 1, 0, 0, 0, 1]);

/** Grants a request of any type: requests other than AUTH ignore the members of its answer. */
const GRANTED = Buffer.from(JSON.stringify({ Version: '3', ClientId: 'loopback' }));

export interface LoopbackGateway extends SdkServer {
  close(): void;
}

/**
 * Opens a gateway on loopback for SDK sessions of this process. It grants every request and does nothing, so other
 * programs gain nothing from connecting to it.
 */
export async function openLoopbackGateway(): Promise<LoopbackGateway> {
  const { cert, key } = makeRelayCertificate();
  const clients = new Set<Socket>();
  const server = createServer({ cert, key, noDelay: true }, grantRequests);
  server.maxConnections = 4;
  server.on('connection', (client) => {
    clients.add(client);
    client.once('close', () => clients.delete(client));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = () => {
    server.close();
    for (const client of clients) client.destroy();
  };
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, cert, close };
}

/**
 * Answers each request: the SDK opens a stream with its type and then sends the request in one frame. A nudge follows all
 * received data, because the SDK leaves Nagle's algorithm on: its next small write would wait about 40 ms for a delayed
 * ACK.
 */
function grantRequests(sdk: TLSSocket): void {
  let rest: Buffer = Buffer.alloc(0);
  sdk.on('error', () => sdk.destroy());
  sdk.on('data', (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk]);
    const answers: Buffer[] = [];
    while (rest.length >= HEADER_LENGTH) {
      const first = rest.readUInt32BE(0);
      const type = (first >>> 4) & 0xf;
      const length = first >>> 8;
      // Nothing follows a GOAWAY, whose length is wrong (1.7.0).
      if (type === GOAWAY || length > MAX_BODY) return void sdk.pause();
      if (rest.length < HEADER_LENGTH + length) break;
      const asks = type === DATA && (first & SYN) === 0 && length > 0;
      if (asks) answers.push(answerOn(rest.readUInt32BE(4)));
      rest = rest.subarray(HEADER_LENGTH + length);
    }
    sdk.write(Buffer.concat([...answers, NUDGE]));
  });
}

function answerOn(stream: number): Buffer {
  const header = Buffer.alloc(HEADER_LENGTH);
  header.writeUInt32BE(GRANTED.length * 256 + DATA * 16 + FIN, 0);
  header.writeUInt32BE(stream, 4);
  return Buffer.concat([header, GRANTED]);
}
