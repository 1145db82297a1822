import { isIP, isIPv4, isIPv6 } from 'node:net';
import { posix } from 'node:path';
import { domainToASCII } from 'node:url';
import { canonicalIpv6, hostPort } from '../../lib/ip-address.ts';
import { MAX_SOCKET_PATH } from '../../lib/unix-socket.ts';

/** A service that is reached over TCP. */
export interface TcpUpstream {
  kind: 'tcp';
  /** As it was given; null when it was left out. */
  scheme: 'http' | 'https' | null;
  /** Lower-case name, IPv4 address, or IPv6 address without brackets. */
  host: string;
  port: number;
}

/** A service that listens on a unix socket. */
export interface UnixUpstream {
  kind: 'unix';
  path: string;
}

/** Where a tunnel's traffic goes. */
export type Upstream = TcpUpstream | UnixUpstream;

/** Raised for a `forwards_to` that cannot be understood; the message says what is wrong and what is allowed. */
export class UpstreamFormatError extends Error {
  constructor(problem: string) {
    super(`${problem}; allowed are a port, host:port, [ipv6]:port, http(s)://host:port and unix:/path`);
    this.name = new.target.name;
  }
}

const LABEL = /^(?![-])[a-z0-9_-]{1,63}(?<!-)$/;
const DEFAULT_PORTS = { http: 80, https: 443 } as const;

/**
 * Reads a `forwards_to`.
 *
 * @param input a port, `host:port`, `[ipv6]:port`, `http(s)://host[:port]` or `unix:/path`; a port alone means localhost
 * @throws {UpstreamFormatError}
 */
export function parseUpstream(input: string | number): Upstream {
  if (typeof input === 'number') return onLocalhost(String(input));
  const text = input;
  if (text === '') throw new UpstreamFormatError('it is empty');
  if (hasBlankOrControl(text)) throw new UpstreamFormatError('it holds a blank or a control character');
  if (/^unix:/i.test(text)) return parseUnix(text.slice('unix:'.length));
  if (/^\d+$/.test(text)) return onLocalhost(text);

  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(text)?.[1]?.toLowerCase() ?? null;
  if (scheme === null) return { kind: 'tcp', scheme, ...parseHostAndPort(text, null) };
  if (scheme !== 'http' && scheme !== 'https') {
    const hint = scheme === 'tcp' || scheme === 'tls' ? `: give host:port, the tunnel's protocol says the rest` : '';
    throw new UpstreamFormatError(`the scheme ${scheme}:// is not known here${hint}`);
  }
  // A lone slash is what a browser's address line ends in.
  const rest = text.slice(scheme.length + '://'.length).replace(/\/$/, '');
  return { kind: 'tcp', scheme, ...parseHostAndPort(rest, DEFAULT_PORTS[scheme]) };
}

/** The upstream as the API shows it: `<host>:<port>`, a scheme only when it was given. */
export function displayUpstream(upstream: Upstream): string {
  if (upstream.kind === 'unix') return `unix:${upstream.path}`;
  const authority = hostPort(upstream.host, upstream.port);
  return upstream.scheme === null ? authority : `${upstream.scheme}://${authority}`;
}

/** Whether the upstream is named, so that only resolving the name tells where it is. */
export function isNamed(upstream: TcpUpstream): boolean {
  return upstream.host !== 'localhost' && isIP(upstream.host) === 0;
}

function onLocalhost(port: string): TcpUpstream {
  return { kind: 'tcp', scheme: null, host: 'localhost', port: parsePort(port) };
}

function parseUnix(text: string): UnixUpstream {
  if (!text.startsWith('/')) throw new UpstreamFormatError('the path of a unix socket has to be absolute');
  // unix:///run/x is the same as unix:/run/x.
  const path = posix.normalize(text.replace(/^\/+/, '/'));
  if (path.endsWith('/')) throw new UpstreamFormatError('that is a folder, not a socket');
  if (Buffer.byteLength(path) > MAX_SOCKET_PATH) {
    throw new UpstreamFormatError(`the path of a unix socket has at most ${MAX_SOCKET_PATH} bytes`);
  }
  return { kind: 'unix', path };
}

function parseHostAndPort(text: string, defaultPort: number | null): { host: string; port: number } {
  if (text.includes('@')) throw new UpstreamFormatError('a user name or password is not allowed');
  if (/[/?#\\]/.test(text)) throw new UpstreamFormatError('a path, query or fragment is not allowed');
  const match = /^(?:\[([^[\]]*)\]|([^:[\]]*))(?::([^:]*))?$/.exec(text);
  if (!match) {
    throw new UpstreamFormatError(isIPv6(text) ? 'an IPv6 address needs brackets' : 'it is not host:port');
  }
  const [, ipv6, name, portText] = match;
  const host = ipv6 === undefined ? parseName(name ?? '') : parseIpv6(ipv6);
  if (portText !== undefined) return { host, port: parsePort(portText) };
  if (defaultPort === null) throw new UpstreamFormatError('the port is missing');
  return { host, port: defaultPort };
}

function parsePort(text: string): number {
  if (!/^[1-9]\d{0,4}$/.test(text) || Number(text) > 65535) {
    throw new UpstreamFormatError('a port is a number from 1 to 65535');
  }
  return Number(text);
}

function parseIpv6(text: string): string {
  if (text.includes('%')) throw new UpstreamFormatError('an IPv6 zone is not allowed');
  if (!isIPv6(text)) throw new UpstreamFormatError('what stands in brackets is not an IPv6 address');
  return canonicalIpv6(text);
}

function parseName(text: string): string {
  if (text === '') throw new UpstreamFormatError('the host is missing');
  const isAscii = /^[\x21-\x7e]+$/.test(text);
  const name = (isAscii ? text.toLowerCase() : domainToASCII(text)).replace(/\.$/, '');
  if (isAscii && isIPv4(name)) return name;
  const labels = name.split('.');
  // Resolvers read 127.1, 0x7f.1 and 2130706433 as addresses, and URL parsers digits of other scripts;
  // whoever reads the list of tunnels does not.
  if (/^(?:\d+|0x[0-9a-f]*)$/.test(labels.at(-1) ?? '')) {
    throw new UpstreamFormatError('an IPv4 address has four decimal numbers without leading zeros');
  }
  if (name.length > 253 || !labels.every((label) => LABEL.test(label))) {
    throw new UpstreamFormatError('the host is neither a name nor an IP address');
  }
  return name;
}

function hasBlankOrControl(text: string): boolean {
  // \s covers the blanks of Unicode as well; a NUL would cut the text short in the system's calls.
  return /\s|\p{Cc}/u.test(text);
}
