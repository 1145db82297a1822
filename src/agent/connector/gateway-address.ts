import { isIP } from 'node:net';

/** Where ngrok's cloud takes agents' sessions. */
export const CLOUD_ADDRESS = 'connect.ngrok-agent.com:443';

/** A gateway's `host:port`, taken apart. */
export interface GatewayAddress {
  host: string;
  port: number;
  /** What TLS names the server by; undefined for an IP address, which has no place there. */
  serverName: string | undefined;
}

/** Reads `host[:port]` as the SDK does: port 443 when it is left out, a host name or an IPv4 address. */
export function parseGatewayAddress(address: string): GatewayAddress {
  const [, host = address, port = '443'] = /^(.*?)(?::(\d+))?$/.exec(address) ?? [];
  return { host, port: Number(port), serverName: isIP(host) ? undefined : host };
}
