import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import type { RelayEntry } from './gateway-relay.ts';
import { makeRelayCertificate } from './relay-certificate.ts';

/** Frames of muxado: 4 bits of type and 4 of flags follow 24 of length, then 4 bytes of stream id, then the body. */
const HEADER_LENGTH = 8;
const DATA = 1;
const GOAWAY = 3;
const FIN = 0x1;
const SYN = 0x2;
/** More than any request that is made here. */
const MAX_BODY = 4096;

/** A WNDINC of 1 for a stream that no agent uses, which they ignore. */
const NUDGE = Buffer.from([0, 0, 4, 0x20, 0, 0, 0, 1, 0, 0, 0, 1]);

/** Says yes to a request of any type; who asked something else ignores the members of AUTH's answer. */
const YES = Buffer.from(JSON.stringify({ Version: '3', ClientId: 'loopback' }));

export interface LoopbackGateway extends RelayEntry {
  /** Ends every connection. */
  close(): void;
}

/**
 * Opens a gateway on loopback for sessions of this process's own SDK: it grants every request, and does nothing.
 * Whoever else connects to it gets the same answer, which is good for nothing.
 */
export async function openLoopbackGateway(): Promise<LoopbackGateway> {
  const { cert, key } = makeRelayCertificate();
  const clients = new Set<Socket>();
  const server = createServer({ cert, key, noDelay: true }, agree);
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
 * Answers each request: the SDK opens a stream with its type, and then sends what it asks in one frame. Whatever comes
 * is followed by a nudge: the SDK leaves Nagle's algorithm on, and its next small write would wait some 40 ms for the
 * delayed ACK of the last one.
 */
function agree(sdk: TLSSocket): void {
  let rest: Buffer = Buffer.alloc(0);
  sdk.on('error', () => sdk.destroy());
  sdk.on('data', (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk]);
    const answers: Buffer[] = [];
    while (rest.length >= HEADER_LENGTH) {
      const first = rest.readUInt32BE(0);
      const type = (first >>> 4) & 0xf;
      const length = first >>> 8;
      // Behind a GOAWAY comes nothing, and its length is wrong (1.7.0).
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
  header.writeUInt32BE(YES.length * 256 + DATA * 16 + FIN, 0);
  header.writeUInt32BE(stream, 4);
  return Buffer.concat([header, YES]);
}
