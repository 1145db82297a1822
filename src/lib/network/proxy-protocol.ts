import { isIPv4, isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';
import { addressBytes, parseAddress, unmapped } from './ip-address.ts';

export interface ConnectionEnds {
  readonly clientIp: string;
  readonly clientPort: number;
  readonly serverIp: string;
  readonly serverPort: number;
}

/** Longest line of version 1, and longest header of version 2 that is read: balancers add some hundred bytes at most. */
const MAX_LINE = 107;
const MAX_BINARY = 4096;
const FIXED_BYTES = 16;

const SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
/** Version 2, command PROXY. */
const VERSION_AND_COMMAND = 0x21;
/** Version 2, command LOCAL: the sender's own connection, such as a health check. */
const LOCAL = 0x20;
/** Address families, each with the transport TCP. */
const UNKNOWN = 0x00;
const TCP4 = 0x11;
const TCP6 = 0x21;
/** Of this project: a value, and the signature of all bytes before it. */
const SIGNED = 0xe0;
const SIGNATURE_OF_IT = 0xe1;
const VALUE_HEAD_BYTES = 3;

/**
 * The header that tells an upstream which client a connection comes from: its first bytes (HAProxy's PROXY protocol,
 * proxy-protocol.txt of 2020-03-05, sections 2.1 and 2.2).
 */
export function proxyHeader(version: 1 | 2, ends: ConnectionEnds): Buffer {
  return version === 1 ? textHeader(ends) : binaryHeader(ends);
}

/** Version 2 for a connection that is the sender's own. */
export const OWN_CONNECTION = Buffer.concat([SIGNATURE, Buffer.from([LOCAL, UNKNOWN, 0, 0])]);

/** What follows the addresses in version 2: values of types 0xE0 to 0xEF are an application's own (section 2.2.8). */
export interface ProxyValue {
  readonly type: number;
  readonly value: Buffer;
}

/**
 * A header of version 2 with a value and its signature, which covers all bytes before it.
 *
 * @param sign makes a signature of always the same length
 */
export function signedProxyHeader(ends: ConnectionEnds, value: Buffer, sign: (bytes: Buffer) => Buffer): Buffer {
  const signatureBytes = sign(Buffer.alloc(0)).length;
  const header = binaryHeader(ends, [encodeValue({ type: SIGNED, value })], VALUE_HEAD_BYTES + signatureBytes);
  return Buffer.concat([header, encodeValue({ type: SIGNATURE_OF_IT, value: sign(header) })]);
}

/** @returns the value and what was signed of a header of {@link signedProxyHeader}; null for any other one */
export function signedValueOf(
  header: Buffer,
  { values }: ParsedProxyHeader,
): { value: Buffer; signature: Buffer; signed: Buffer } | null {
  const [value, signature, ...rest] = values;
  if (value?.type !== SIGNED || signature?.type !== SIGNATURE_OF_IT || rest.length > 0) return null;
  const signed = header.subarray(0, header.length - VALUE_HEAD_BYTES - signature.value.length);
  return { value: value.value, signature: signature.value, signed };
}

function encodeValue({ type, value }: ProxyValue): Buffer {
  const head = Buffer.alloc(VALUE_HEAD_BYTES);
  head.writeUInt8(type, 0);
  head.writeUInt16BE(value.length, 1);
  return Buffer.concat([head, value]);
}

function textHeader(ends: ConnectionEnds): Buffer {
  const { clientIp, serverIp, clientPort, serverPort } = ends;
  const family = familyOf(ends);
  if (family === UNKNOWN) return Buffer.from('PROXY UNKNOWN\r\n', 'latin1');
  const name = family === TCP4 ? 'TCP4' : 'TCP6';
  return Buffer.from(`PROXY ${name} ${clientIp} ${serverIp} ${clientPort} ${serverPort}\r\n`, 'latin1');
}

/** @param following bytes of further values that the caller appends */
function binaryHeader(ends: ConnectionEnds, values: readonly Buffer[] = [], following = 0): Buffer {
  const content = Buffer.concat([addressBlock(ends), ...values]);
  const rest = Buffer.alloc(4);
  rest.writeUInt8(VERSION_AND_COMMAND, 0);
  rest.writeUInt8(familyOf(ends), 1);
  rest.writeUInt16BE(content.length + following, 2);
  return Buffer.concat([SIGNATURE, rest, content]);
}

function addressBlock({ clientIp, serverIp, clientPort, serverPort }: ConnectionEnds): Buffer {
  const [client, server] = [addressBytes(clientIp), addressBytes(serverIp)];
  if (client === null || server === null || client.length !== server.length) return Buffer.alloc(0);
  const ports = Buffer.alloc(4);
  ports.writeUInt16BE(clientPort, 0);
  ports.writeUInt16BE(serverPort, 2);
  return Buffer.concat([client, server, ports]);
}

/** Both ends belong to one socket, so they share a family; an unknown end makes both unknown. */
function familyOf({ clientIp, serverIp }: ConnectionEnds): number {
  if (isIPv4(clientIp) && isIPv4(serverIp)) return TCP4;
  return isIPv6(clientIp) && isIPv6(serverIp) ? TCP6 : UNKNOWN;
}

export interface ParsedProxyHeader {
  /** Null: the connection is the sender's own, or of a kind without addresses. */
  readonly ends: ConnectionEnds | null;
  /** Bytes of the header. */
  readonly length: number;
  readonly values: readonly ProxyValue[];
}

/**
 * Parses a header of either version at the start of a connection. Balancers that listen for IPv4 and IPv6 on one socket write
 * IPv4 addresses as IPv4-mapped ones (HAProxy's `v4v6`): both ends become what they stand for.
 *
 * @param bytes received so far
 * @returns undefined when incomplete; null when there is none, or a malformed one
 */
export function parseProxyHeader(bytes: Buffer): ParsedProxyHeader | null | undefined {
  const isBinary = startsAlike(bytes, SIGNATURE);
  if (!isBinary && !startsAlike(bytes, Buffer.from('PROXY '))) return null;
  return isBinary ? parseBinary(bytes) : parseLine(bytes);
}

function startsAlike(bytes: Buffer, start: Buffer): boolean {
  const length = Math.min(bytes.length, start.length);
  return bytes.subarray(0, length).equals(start.subarray(0, length));
}

function parseLine(bytes: Buffer): ParsedProxyHeader | null | undefined {
  const end = bytes.indexOf('\r\n');
  if (end < 0) return bytes.length < MAX_LINE ? undefined : null;
  if (end + 2 > MAX_LINE) return null;
  const length = end + 2;
  const [, family, clientIp = '', serverIp = '', ...ports] = bytes.toString('latin1', 0, end).split(' ');
  if (family === 'UNKNOWN') return { ends: null, length, values: [] };
  const isAddress = family === 'TCP4' ? isIPv4 : isIPv6;
  const [clientPort, serverPort] = ports.map(portOf);
  const isWellFormed = (family === 'TCP4' || family === 'TCP6') && isAddress(clientIp) && isAddress(serverIp);
  if (!isWellFormed || ports.length !== 2 || clientPort == null || serverPort == null) return null;
  const ends = { clientIp: canonical(clientIp), serverIp: canonical(serverIp), clientPort, serverPort };
  return { ends, length, values: [] };
}

/** @param address well-formed */
function canonical(address: string): string {
  return parseAddress(address)?.toString() ?? address;
}

function portOf(text: string): number | null {
  return /^\d{1,5}$/.test(text) && Number(text) <= 65_535 ? Number(text) : null;
}

function parseBinary(bytes: Buffer): ParsedProxyHeader | null | undefined {
  if (bytes.length < FIXED_BYTES) return undefined;
  const [command, family] = [bytes.readUInt8(12), bytes.readUInt8(13)];
  const length = FIXED_BYTES + bytes.readUInt16BE(14);
  if ((command !== LOCAL && command !== VERSION_AND_COMMAND) || length > MAX_BINARY) return null;
  if (bytes.length < length) return undefined;
  const width = family === TCP4 ? 4 : 16;
  if (command === LOCAL || (family !== TCP4 && family !== TCP6)) return { ends: null, length, values: [] };
  if (length < FIXED_BYTES + 2 * width + 4) return null;
  const address = (at: number) => unmapped(ipaddr.fromByteArray([...bytes.subarray(at, at + width)])).toString();
  const portsAt = FIXED_BYTES + 2 * width;
  const clientIp = address(FIXED_BYTES);
  const serverIp = address(FIXED_BYTES + width);
  const [clientPort, serverPort] = [bytes.readUInt16BE(portsAt), bytes.readUInt16BE(portsAt + 2)];
  const values = parseValues(bytes.subarray(portsAt + 4, length));
  return values && { ends: { clientIp, serverIp, clientPort, serverPort }, length, values };
}

/** @returns null when they are malformed */
function parseValues(bytes: Buffer): ProxyValue[] | null {
  const values: ProxyValue[] = [];
  for (let at = 0; at < bytes.length; ) {
    if (at + VALUE_HEAD_BYTES > bytes.length) return null;
    const end = at + VALUE_HEAD_BYTES + bytes.readUInt16BE(at + 1);
    if (end > bytes.length) return null;
    values.push({ type: bytes.readUInt8(at), value: bytes.subarray(at + VALUE_HEAD_BYTES, end) });
    at = end;
  }
  return values;
}
