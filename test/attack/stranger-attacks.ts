import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { FrameWriter, MuxError } from '../../src/agent-protocol/frames.ts';
import { StreamType, streamPrefix } from '../../src/agent-protocol/messages.ts';
import { type Attack, held, type Life, openTcp, openTls, repeat } from './attack.ts';

const open = (life: Life) => openTls(life.target.sessionPort, 'localhost', life);

/** The bytes of many frames. */
function frames(count: number, write: (writer: FrameWriter, index: number) => void): Buffer {
  const writer = new FrameWriter();
  for (let index = 0; index < count; index++) write(writer, index);
  return Buffer.concat(writer.take());
}

const data = (writer: FrameWriter, stream: number, payload: Buffer, flags = {}) =>
  writer.data(stream, [payload], payload.length, { syn: false, fin: false, ...flags });

/** Sends a part of something and waits. */
async function sendPart(socket: Socket, part: Buffer): Promise<void> {
  socket.write(part);
  await held(socket);
}

const PART_OF_HELLO = Buffer.from('16030102', 'hex');
const PART_OF_AUTH = frames(1, (writer) => data(writer, 3, streamPrefix(StreamType.auth), { syn: true }));

/** Crowds that only count: carried out when they are named. Together they would leave no processor time for the others. */
export const STRANGER_CROWDS: Attack[] = [
  {
    name: 'crowd: parts of a ClientHello to the session port',
    width: 150,
    live: async (life) => sendPart(await openTcp(life.target.sessionPort, life), PART_OF_HELLO),
  },
  {
    name: 'crowd: parts of a ClientHello to the HTTPS port',
    width: 150,
    live: async (life) => sendPart(await openTcp(life.target.httpsPort, life), PART_OF_HELLO),
  },
  {
    name: 'crowd: parts of AUTH to the session port',
    width: 60,
    live: async (life) => sendPart(await open(life), PART_OF_AUTH),
  },
  {
    name: 'crowd: parts of AUTH to the HTTPS port',
    width: 60,
    live: async (life) => sendPart(await openTls(life.target.httpsPort, 'connect.localhost', life), PART_OF_AUTH),
  },
];

/** Strangers without an authtoken, at the port for agents and at the name for agents on the HTTPS port. */
export const STRANGER_ATTACKS: Attack[] = [
  {
    name: 'silent connection to the session port',
    width: 20,
    live: async (life) => held(await openTcp(life.target.sessionPort, life)),
  },
  {
    name: 'random bytes for TLS',
    width: 5,
    async live(life) {
      const socket = await openTcp(life.target.sessionPort, life);
      await repeat(socket, 100, () => socket.write(randomBytes(1000)));
    },
  },
  {
    name: 'random bytes for frames',
    width: 5,
    async live(life) {
      const socket = await open(life);
      await repeat(socket, 100, () => socket.write(randomBytes(1000)));
    },
  },
  {
    name: 'heartbeats, one byte a frame',
    width: 6,
    async live(life) {
      const socket = await open(life);
      socket.write(frames(1, (writer) => data(writer, 3, streamPrefix(StreamType.heartbeat), { syn: true })));
      const flood = frames(5000, (writer) => data(writer, 3, Buffer.alloc(1)));
      await repeat(socket, 10, () => socket.write(flood), { reads: false });
    },
  },
  {
    name: 'the same by connect.<domain> on the HTTPS port',
    width: 6,
    async live(life) {
      const socket = await openTls(life.target.httpsPort, 'connect.localhost', life);
      socket.write(frames(1, (writer) => data(writer, 3, streamPrefix(StreamType.heartbeat), { syn: true })));
      const flood = frames(5000, (writer) => data(writer, 3, Buffer.alloc(1)));
      await repeat(socket, 10, () => socket.write(flood), { reads: false });
    },
  },
  {
    name: 'streams that are opened and reset',
    width: 4,
    async live(life) {
      const socket = await open(life);
      let next = 3;
      await repeat(socket, 10, () => {
        const churn = frames(500, (writer) => {
          data(writer, next, Buffer.concat([streamPrefix(StreamType.auth), Buffer.from('{}')]), { syn: true });
          writer.reset(next, MuxError.cancelled);
          next += 2;
        });
        socket.write(churn);
      });
    },
  },
  {
    name: 'frames for unknown streams whose answers are not read',
    width: 4,
    async live(life) {
      const socket = await open(life);
      const flood = frames(2000, (writer, index) => data(writer, 1_000_001 + 2 * index, Buffer.alloc(1)));
      await repeat(socket, 10, () => socket.write(flood), { reads: false });
    },
  },
  {
    name: 'AUTH of 64 KB',
    width: 4,
    async live(life) {
      const socket = await open(life);
      const body = Buffer.from(`{"Version":[${'1,'.repeat(32_000)}1],"ClientId":"","Extra":{}}`);
      let next = 3;
      await repeat(socket, 200, () => {
        const stream = next;
        next += 2;
        const request = frames(1, (writer) => {
          data(writer, stream, streamPrefix(StreamType.auth), { syn: true });
          data(writer, stream, body);
        });
        socket.write(request);
      });
    },
  },
];
