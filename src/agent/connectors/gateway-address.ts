import { isIP } from 'node:net';

/** Where ngrok's cloud takes agents' sessions. */
export const CLOUD_ADDRESS = 'connect.ngrok-agent.com:443';

/** A gateway's `host:port`, taken apart. */
export interface GatewayAddress {
  /** A name or an address, of IPv6 without brackets. */
  host: string;
  port: number;
  /** What TLS names the server by; undefined for an IP address, which has no place there. */
  serverName: string | undefined;
}

/** Reads `host[:port]`, with port 443 when it is left out; the host is a name or an address, of IPv6 in brackets. */
export function parseGatewayAddress(address: string): GatewayAddress {
  const [, bracketed, plain = address, port = '443'] = /^(?:\[([^\]]+)\]|(.*?))(?::(\d+))?$/.exec(address) ?? [];
  const host = bracketed ?? plain;
  return { host, port: Number(port), serverName: isIP(host) ? undefined : host };
}
