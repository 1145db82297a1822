import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { serving } from './loopback.ts';

/** Groups of key exchange (RFC 8446, section 4.2.7), by their numbers. */
const GROUPS: Readonly<Record<number, string>> = { 29: 'X25519', 23: 'P-256', 4588: 'X25519MLKEM768' };
const RECORD_HEADER = 5;
const KEY_SHARE = 51;

/** What has passed through a port in front of a TLS server. */
export interface Tap {
  readonly port: number;
  /** Bytes of the last connection's ClientHello, as a record. */
  readonly helloBytes: number;
  /** The group in which the last connection agreed on a key. */
  readonly group: string;
  /** Bytes of the last connection, both ways. */
  readonly bytes: number;
}

/**
 * Opens a port that passes connections on to a server.
 *
 * @param pieces into how many the ClientHello is cut; each arrives alone
 */
export async function tapped(to: number, pieces = 1): Promise<Tap> {
  const seen = { port: 0, helloBytes: 0, group: '', bytes: 0 };
  const server = createServer((client) => {
    const far = connect({ port: to, host: '127.0.0.1', noDelay: true });
    for (const [one, other] of [
      [client, far],
      [far, client],
    ] as const)
      one.on('error', () => {}).once('close', () => other.destroy());
    Object.assign(seen, { group: '', helloBytes: 0, bytes: 0 });
    const count = ({ length }: Buffer) => {
      seen.bytes += length;
    };
    client.on('data', count);
    far.on('data', count).once('data', (bytes: Buffer) => {
      seen.group = groupOf(bytes);
    });
    far.pipe(client);
    void cut(client, far, pieces).then((helloBytes) => {
      seen.helloBytes = helloBytes;
      client.pipe(far);
    });
  });
  seen.port = await serving(server);
  return seen;
}

/** Passes the ClientHello on. @returns its length */
async function cut(client: Socket, far: Socket, pieces: number): Promise<number> {
  let hello: Buffer = Buffer.alloc(0);
  for await (const bytes of client.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    hello = Buffer.concat([hello, bytes]);
    if (hello.length >= RECORD_HEADER && hello.length >= RECORD_HEADER + hello.readUInt16BE(3)) break;
  }
  for (let piece = 0; piece < pieces; piece++) {
    far.write(hello.subarray((hello.length * piece) / pieces, (hello.length * (piece + 1)) / pieces));
    if (piece < pieces - 1) await delay(5);
  }
  return hello.length;
}

/** The group of a ServerHello of TLS 1.3 (RFC 8446, section 4.1.3); empty: it names none. */
function groupOf(record: Buffer): string {
  const sessionId = RECORD_HEADER + 4 + 2 + 32;
  let at = sessionId + 1 + (record[sessionId] ?? 0) + 2 + 1 + 2;
  while (at + 6 <= record.length) {
    const [type, length] = [record.readUInt16BE(at), record.readUInt16BE(at + 2)];
    const group = record.readUInt16BE(at + 4);
    if (type === KEY_SHARE) return GROUPS[group] ?? String(group);
    at += 4 + length;
  }
  return '';
}
