import {
  type Answer,
  AUTHORITATIVE_ANSWER,
  decode,
  encode,
  type OptAnswer,
  type Packet,
  type Question,
  RECURSION_DESIRED,
  TRUNCATED_RESPONSE,
} from 'dns-packet';

export interface ChallengeZone {
  /** Lower case, without a final dot. */
  name: string;
  /** The host in the parent zone's NS record; outside this zone, which serves no addresses. */
  nameServer: string;
  /** The TXT values at a name, lower case; none: the name does not exist. */
  texts: (name: string) => readonly string[];
}

const HEADER_BYTES = 12;
/** Type of the record that EDNS adds (RFC 6891, section 6.1.1). */
const OPT = 41;
/** Real queries are far smaller; larger ones would only keep the decoder busy. */
export const MAX_QUERY_BYTES = 1024;
/** RFC 1035, section 2.3.4. */
const MAX_NAME_BYTES = 255;
const PLAIN_UDP_BYTES = 512;
/** Not fragmented on any common link (DNS flag day 2020). */
const EDNS_UDP_BYTES = 1232;
/** Values change with every order: resolvers must cache neither a value nor its absence. */
const TTL_SECONDS = 1;
const NS_TTL_SECONDS = 3600;

/** RFC 1035, section 4.1.1; `badVersion` RFC 6891, section 9. */
const RCODE = { ok: 0, formatError: 1, noSuchName: 3, notImplemented: 4, refused: 5, badVersion: 16 } as const;
type Rcode = (typeof RCODE)[keyof typeof RCODE];

const TRANSFERS: readonly string[] = ['AXFR', 'IXFR'];

/** Answers a DNS query, without the length prefix of TCP; null when no response must be sent. */
export function answerQuery(packet: Buffer, zone: ChallengeZone, transport: 'udp' | 'tcp'): Buffer | null {
  if (packet.length < HEADER_BYTES) return null;
  const flags = packet.readUInt16BE(2);
  // Responding to responses could make two servers send to each other forever.
  if (flags & 0x8000) return null;
  if ((flags >> 11) & 0xf) return bareAnswer(packet, RCODE.notImplemented);
  const query = readQuery(packet);
  if (!query) return bareAnswer(packet, RCODE.formatError);
  if (query.question.class !== 'IN') return bareAnswer(packet, RCODE.refused);
  return reply(query, zone, transport);
}

interface Query {
  id: number;
  flags: number;
  question: Question;
  /** The sender's OPT record (RFC 6891, section 6.1.2), or null. */
  edns: { udpBytes: number; version: number } | null;
}

/** Parses a query with one question and at most an OPT record; null for anything else. */
function readQuery(packet: Buffer): Query | null {
  const counts = [4, 6, 8].map((offset) => packet.readUInt16BE(offset));
  if (packet.length > MAX_QUERY_BYTES || counts[0] !== 1 || counts[1] !== 0 || counts[2] !== 0) return null;
  const end = endOfName(packet);
  if (end === null || packet.length < end + 4) return null;
  const edns = readEdns(packet, end + 4);
  if (edns === undefined) return null;
  // Only the question is decoded: options are expensive to decode and not needed.
  const bare = Buffer.from(packet.subarray(0, end + 4));
  bare.writeUInt16BE(0, 10);
  const { id = 0, flags = 0, questions: [question] = [] } = decode(bare);
  return question ? { id, flags, question, edns } : null;
}

/** Undefined when something else follows the question. */
function readEdns(packet: Buffer, offset: number): Query['edns'] | undefined {
  const count = packet.readUInt16BE(10);
  if (count === 0) return null;
  const isOpt = packet.length >= offset + 11 && packet[offset] === 0 && packet.readUInt16BE(offset + 1) === OPT;
  if (count !== 1 || !isOpt) return undefined;
  return { udpBytes: packet.readUInt16BE(offset + 3), version: packet.readUInt8(offset + 6) };
}

/** The end of the question's name; null for pointers and bytes that decoding would change. */
function endOfName(packet: Buffer): number | null {
  let offset = HEADER_BYTES;
  for (;;) {
    const length = packet[offset];
    if (length === undefined || length > 63) return null;
    const next = offset + 1 + length;
    if (next - HEADER_BYTES > MAX_NAME_BYTES) return null;
    if (length === 0) return next;
    const isPlain = packet.subarray(offset + 1, next).every((byte) => byte > 0x20 && byte < 0x7f && byte !== 0x2e);
    if (!isPlain) return null;
    offset = next;
  }
}

/** A response of only a header, for packets whose question cannot be copied. */
function bareAnswer(packet: Buffer, rcode: Rcode): Buffer {
  const answer = Buffer.alloc(HEADER_BYTES);
  answer.writeUInt16BE(packet.readUInt16BE(0), 0);
  // Opcode and "recursion desired" are copied (RFC 1035, section 4.1.1).
  answer.writeUInt16BE(0x8000 | (packet.readUInt16BE(2) & 0x7900) | rcode, 2);
  return answer;
}

function reply({ id, flags, question, edns }: Query, zone: ChallengeZone, transport: 'udp' | 'tcp'): Buffer {
  const content: Content = edns && edns.version > 0 ? { rcode: RCODE.badVersion } : resolve(question, zone);
  const { rcode, answers = [], authorities = [] } = content;
  const isAuthoritative = rcode === RCODE.ok || rcode === RCODE.noSuchName;
  const head: Packet = {
    type: 'response',
    id,
    flags: (isAuthoritative ? AUTHORITATIVE_ANSWER : 0) | (flags & RECURSION_DESIRED) | (rcode & 0xf),
    questions: [question],
    additionals: edns ? [optRecord(rcode)] : [],
  };
  const full = encode({ ...head, answers, authorities });
  const room = edns ? Math.min(Math.max(edns.udpBytes, PLAIN_UDP_BYTES), EDNS_UDP_BYTES) : PLAIN_UDP_BYTES;
  if (transport === 'tcp' || full.length <= room) return full;
  return encode({ ...head, flags: (head.flags ?? 0) | TRUNCATED_RESPONSE });
}

function optRecord(rcode: Rcode): OptAnswer {
  return {
    type: 'OPT',
    name: '.',
    udpPayloadSize: EDNS_UDP_BYTES,
    extendedRcode: rcode >> 4,
    ednsVersion: 0,
    flags: 0,
    flag_do: false,
    options: [],
  };
}

interface Content {
  rcode: Rcode;
  answers?: Answer[];
  authorities?: Answer[];
}

function resolve({ name, type }: Question, zone: ChallengeZone): Content {
  // Resolvers randomize the case against spoofing, and expect it back.
  const key = name.toLowerCase();
  const isApex = key === zone.name;
  if (TRANSFERS.includes(type) || !(isApex || key.endsWith(`.${zone.name}`))) return { rcode: RCODE.refused };
  const wanted = (answer: Answer) => answer.type === type || String(type) === 'ANY';
  const present = isApex ? apexRecords(name, zone) : textRecords(name, zone.texts(key));
  const answers = present.filter(wanted);
  if (answers.length > 0) return { rcode: RCODE.ok, answers };
  // The SOA limits negative caching (RFC 2308, section 3).
  return { rcode: present.length > 0 ? RCODE.ok : RCODE.noSuchName, authorities: [soaRecord(zone.name, zone)] };
}

function textRecords(name: string, values: readonly string[]): Answer[] {
  return values.map((data): Answer => ({ type: 'TXT', name, ttl: TTL_SECONDS, data }));
}

function apexRecords(name: string, zone: ChallengeZone): Answer[] {
  return [soaRecord(name, zone), { type: 'NS', name, ttl: NS_TTL_SECONDS, data: zone.nameServer }];
}

function soaRecord(name: string, zone: ChallengeZone): Answer {
  const timers = { serial: 1, refresh: 3600, retry: 600, expire: 604_800, minimum: TTL_SECONDS };
  const data = { mname: zone.nameServer, rname: `hostmaster.${zone.name}`, ...timers };
  return { type: 'SOA', name, ttl: TTL_SECONDS, data };
}
