import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import { FrameDecoder, FrameWriter } from '../../../agent-protocol/frames.ts';
import type { SdkServer } from './gateway-relay.ts';
import { makeRelayCertificate } from './relay-certificate.ts';

/** Agents never use this stream id, and ignore credit for it. */
const UNUSED_STREAM_ID = 1;

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
 * Answers each request: the SDK opens a stream with its type and then sends the request in one frame. Credit for an unused
 * stream follows all received data, because the SDK leaves Nagle's algorithm on: its next small write would wait about 40 ms
 * for a delayed ACK.
 */
function grantRequests(sdk: TLSSocket): void {
  const answers = new FrameWriter();
  const ignored = () => {};
  let answerTo: number | null = null;
  const decoder = new FrameDecoder({
    onData: (streamId, length, syn) => {
      answerTo = syn || length === 0 ? null : streamId;
    },
    onPayload: ignored,
    onDataEnd: () => {
      if (answerTo !== null) answers.data(answerTo, [GRANTED], GRANTED.length, { syn: false, fin: true });
    },
    onReset: ignored,
    onWindowIncrement: ignored,
    onGoAway: () => sdk.pause(),
  });
  sdk.on('error', () => sdk.destroy());
  sdk.on('data', (chunk: Buffer) => {
    try {
      decoder.push(chunk);
    } catch {
      // Another program, which does not speak the protocol.
      sdk.destroy();
      return;
    }
    answers.windowIncrement(UNUSED_STREAM_ID, 1);
    answers.writeTo(sdk);
  });
}
