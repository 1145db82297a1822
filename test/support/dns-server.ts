import { createSocket } from 'node:dgram';
import type { AddressInfo } from 'node:net';

const TYPE_CNAME = 5;
const NO_ERROR = 0;
const SERVER_FAILURE = 2;
const NO_SUCH_NAME = 3;

/** A DNS server with CNAME records only (RFC 1035, section 4). */
export interface DnsServer {
  /** `ip:port`, for Node's resolver. */
  address: string;
  /** Targets by name, in lower case; a name may start with `*.`. Tests may change it. */
  records: Map<string, string>;
  /** The queried names so far. */
  asked: string[];
  /** While true, every query gets a failure. */
  failing: boolean;
  close(): Promise<void>;
}

export async function startDnsServer(): Promise<DnsServer> {
  const socket = createSocket('udp4');
  await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
  const server: DnsServer = {
    address: `127.0.0.1:${(socket.address() as AddressInfo).port}`,
    records: new Map(),
    asked: [],
    failing: false,
    close: () => new Promise((resolve) => socket.close(() => resolve())),
  };
  socket.on('message', (query, peer) => {
    const { name, end } = readName(query, 12);
    server.asked.push(name);
    const target = server.failing ? undefined : find(server.records, name);
    const code = server.failing ? SERVER_FAILURE : target === undefined ? NO_SUCH_NAME : NO_ERROR;
    socket.send(answer(query, end + 4, code, target), peer.port, peer.address);
  });
  return server;
}

function find(records: ReadonlyMap<string, string>, name: string): string | undefined {
  return records.get(name) ?? records.get(name.replace(/^[^.]+/, '*'));
}

function readName(packet: Buffer, start: number): { name: string; end: number } {
  const labels: string[] = [];
  let at = start;
  for (let length = packet[at] ?? 0; length > 0; length = packet[at] ?? 0) {
    labels.push(packet.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join('.').toLowerCase(), end: at + 1 };
}

function writeName(name: string): Buffer {
  const labels = name.split('.').map((label) => Buffer.from([label.length, ...Buffer.from(label, 'latin1')]));
  return Buffer.concat([...labels, Buffer.from([0])]);
}

function answer(query: Buffer, questionEnd: number, code: number, target: string | undefined): Buffer {
  const header = Buffer.alloc(12);
  query.copy(header, 0, 0, 2);
  header.writeUInt16BE(0x8180 | code, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(target === undefined ? 0 : 1, 6);
  const question = query.subarray(12, questionEnd);
  if (target === undefined) return Buffer.concat([header, question]);
  const data = writeName(target);
  const record = Buffer.alloc(12);
  // The record's name is a pointer to the question at offset 12.
  record.writeUInt16BE(0xc00c, 0);
  record.writeUInt16BE(TYPE_CNAME, 2);
  record.writeUInt16BE(1, 4);
  record.writeUInt32BE(60, 6);
  record.writeUInt16BE(data.length, 10);
  return Buffer.concat([header, question, record, data]);
}
