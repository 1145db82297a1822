import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import { onTestFinished } from 'vitest';
import { makeRelayCertificate } from '../../src/agent/connectors/sdk/gateway-relay.ts';
import { Connection } from '../../src/agent-protocol/connection.ts';
import { HeartbeatEcho } from '../../src/agent-protocol/heartbeat.ts';
import { StreamType } from '../../src/agent-protocol/messages.ts';
import { RpcResponder, TypedStream } from '../../src/agent-protocol/rpc.ts';
import { MemoryBudget } from '../../src/lib/memory-budget.ts';

/** A request of an agent: the type of its stream, and its body. */
export type RecordedRequest = [type: number, body: Record<string, unknown>];

/** Answers a request. */
export type Answers = (type: number, body: Record<string, unknown>) => object;

/** Grants everything. */
export const GRANT: Answers = (type, { Proto, Opts }) => {
  if (type === StreamType.auth) return { Version: '3', ClientId: 'ts_1', Extra: {} };
  return { Id: `ep_${Math.random()}`, URL: 'https://a.test', Proto, Opts, Extra: { Token: '' } };
};

/** A gateway that records what agents ask, and answers as a test says, until the test ends. */
export async function startRecordingGateway(answer: Answers = GRANT) {
  const { cert, key } = makeRelayCertificate();
  const requests: RecordedRequest[] = [];
  const sockets: TLSSocket[] = [];
  const connections: Connection[] = [];
  const server = createServer({ cert, key, noDelay: true }, (socket) => {
    sockets.push(socket);
    const connection = new Connection(socket, {
      accept(channel) {
        channel.receiver = new TypedStream(channel, (type) => {
          if (type === StreamType.heartbeat) return new HeartbeatEcho(channel);
          return new RpcResponder(
            channel,
            async (request) => {
              const body = request.parse() as Record<string, unknown>;
              requests.push([type, body]);
              return { body: answer(type, body) };
            },
            () => {},
          );
        });
      },
      ended() {},
    });
    connection.trust(new MemoryBudget(Number.POSITIVE_INFINITY));
    connection.start();
    connections.push(connection);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { address, cert, requests, sockets, connections };
}
