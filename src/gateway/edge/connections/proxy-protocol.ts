import { isIPv4, isIPv6 } from 'node:net';
import { addressBytes } from '../../../lib/network/ip-address.ts';

export interface ConnectionEnds {
  readonly clientIp: string;
  readonly clientPort: number;
  readonly serverIp: string;
  readonly serverPort: number;
}

const SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
/** Version 2, command PROXY. */
const VERSION_AND_COMMAND = 0x21;
/** Address families, each with the transport TCP. */
const UNKNOWN = 0x00;
const TCP4 = 0x11;
const TCP6 = 0x21;

/**
 * The header that tells an upstream which client a connection comes from: its first bytes (HAProxy's PROXY protocol,
 * proxy-protocol.txt of 2020-03-05, sections 2.1 and 2.2).
 */
export function proxyHeader(version: 1 | 2, ends: ConnectionEnds): Buffer {
  return version === 1 ? textHeader(ends) : binaryHeader(ends);
}

function textHeader(ends: ConnectionEnds): Buffer {
  const { clientIp, serverIp, clientPort, serverPort } = ends;
  const family = familyOf(ends);
  if (family === UNKNOWN) return Buffer.from('PROXY UNKNOWN\r\n', 'latin1');
  const name = family === TCP4 ? 'TCP4' : 'TCP6';
  return Buffer.from(`PROXY ${name} ${clientIp} ${serverIp} ${clientPort} ${serverPort}\r\n`, 'latin1');
}

function binaryHeader(ends: ConnectionEnds): Buffer {
  const addresses = addressBlock(ends);
  const rest = Buffer.alloc(4);
  rest.writeUInt8(VERSION_AND_COMMAND, 0);
  rest.writeUInt8(familyOf(ends), 1);
  rest.writeUInt16BE(addresses.length, 2);
  return Buffer.concat([SIGNATURE, rest, addresses]);
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
