import { isIP, isIPv4, isIPv6 } from 'node:net';
import { posix } from 'node:path';
import { MAX_SOCKET_PATH } from '../files/runtime-folder.ts';
import { canonicalHostname, hostnameFlaws, isHostname } from './hostname-grammar.ts';
import { canonicalIpv6, hostPort, isUnspecified } from './ip-address.ts';

export interface TcpUpstream {
  kind: 'tcp';
  scheme: 'http' | 'https' | null;
  /** Lower-case name, IPv4 address, or IPv6 address without brackets. */
  host: string;
  port: number;
}

export interface UnixUpstream {
  kind: 'unix';
  path: string;
}

export type Upstream = TcpUpstream | UnixUpstream;

/** A `forwards_to` that is not valid; the message names the problem and the supported forms. */
export class UpstreamFormatError extends Error {
  constructor(problem: string) {
    super(`${problem}; supported: a port, host:port, [ipv6]:port, http(s)://host:port and unix:/path`);
    this.name = new.target.name;
  }
}

const DEFAULT_PORTS = { http: 80, https: 443 } as const;

/**
 * Parses a `forwards_to`.
 *
 * @param input a port, `host:port`, `[ipv6]:port`, `http(s)://host[:port]` or `unix:/path`; a port alone means localhost, as
 *   do 0.0.0.0 and [::]
 * @throws {UpstreamFormatError}
 */
export function parseUpstream(input: string | number): Upstream {
  if (typeof input === 'number') return onLocalhost(String(input));
  const text = input;
  if (text === '') throw new UpstreamFormatError('empty');
  if (hasSpaceOrControl(text)) throw new UpstreamFormatError('it contains white space or a control character');
  if (/^unix:/i.test(text)) return parseUnix(text.slice('unix:'.length));
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(text)?.[1]?.toLowerCase() ?? null;
  if (scheme === null) {
    const authority = authorityOf(text, '');
    return /^\d+$/.test(authority)
      ? onLocalhost(authority)
      : { kind: 'tcp', scheme, ...parseHostAndPort(authority, null) };
  }
  if (scheme !== 'http' && scheme !== 'https') {
    const hint =
      scheme === 'tcp' || scheme === 'tls' ? `: give host:port, the protocol of the tunnel does the rest` : '';
    throw new UpstreamFormatError(`the scheme ${scheme}:// is not supported${hint}`);
  }
  const authority = authorityOf(text.slice(scheme.length + '://'.length), `${scheme}://`);
  return { kind: 'tcp', scheme, ...parseHostAndPort(authority, DEFAULT_PORTS[scheme]) };
}

/** What comes before the path, which may only be the slash that browsers and dev servers append. */
function authorityOf(text: string, scheme: string): string {
  const [authority = ''] = text.split(/[/?#]/, 1);
  if (authority.includes('@')) throw new UpstreamFormatError('user names and passwords are not supported');
  const rest = text.slice(authority.length);
  if (rest === '' || rest === '/') return authority;
  if (authority === '') throw new UpstreamFormatError('the host is missing');
  const what = rest.startsWith('/') ? 'path' : rest.startsWith('?') ? 'query' : 'fragment';
  throw new UpstreamFormatError(
    `the ${what} ${rest} is not supported: give ${scheme}${authority}, clients choose the path`,
  );
}

/** The upstream as the API shows it: `<host>:<port>`, with a scheme only when one was given. */
export function displayUpstream(upstream: Upstream): string {
  if (upstream.kind === 'unix') return `unix:${upstream.path}`;
  const authority = hostPort(upstream.host, upstream.port);
  return upstream.scheme === null ? authority : `${upstream.scheme}://${authority}`;
}

export function isNamed(upstream: TcpUpstream): boolean {
  return upstream.host !== 'localhost' && isIP(upstream.host) === 0;
}

function onLocalhost(port: string): TcpUpstream {
  return { kind: 'tcp', scheme: null, host: 'localhost', port: parsePort(port) };
}

function parseUnix(text: string): UnixUpstream {
  if (!text.startsWith('/')) throw new UpstreamFormatError('the path of a unix socket must be absolute');
  // unix:///run/x equals unix:/run/x.
  const path = posix.normalize(text.replace(/^\/+/, '/'));
  if (path.endsWith('/')) throw new UpstreamFormatError('the path is a folder, not a socket');
  if (Buffer.byteLength(path) > MAX_SOCKET_PATH) {
    throw new UpstreamFormatError(`the path of a unix socket may have at most ${MAX_SOCKET_PATH} bytes`);
  }
  return { kind: 'unix', path };
}

function parseHostAndPort(text: string, defaultPort: number | null): { host: string; port: number } {
  const match = /^(?:\[([^[\]]*)\]|([^:[\]]*))(?::([^:]*))?$/.exec(text);
  if (!match) {
    throw new UpstreamFormatError(isIPv6(text) ? 'an IPv6 address needs brackets' : 'not host:port');
  }
  const [, ipv6, name, portText] = match;
  const host = thisMachine(ipv6 === undefined ? parseName(name ?? '') : parseIpv6(ipv6));
  if (portText !== undefined) return { host, port: parsePort(portText) };
  if (defaultPort === null) throw new UpstreamFormatError('the port is missing');
  return { host, port: defaultPort };
}

/** A server that prints 0.0.0.0 or [::] listens on every address of its machine, which it takes its reader to be at. */
function thisMachine(host: string): string {
  return isUnspecified(host) ? 'localhost' : host;
}

function parsePort(text: string): number {
  if (!/^[1-9]\d{0,4}$/.test(text) || Number(text) > 65535) {
    throw new UpstreamFormatError('the port must be a number from 1 to 65535');
  }
  return Number(text);
}

function parseIpv6(text: string): string {
  if (text.includes('%')) throw new UpstreamFormatError('IPv6 zones are not supported');
  if (!isIPv6(text)) throw new UpstreamFormatError('not an IPv6 address in the brackets');
  return canonicalIpv6(text);
}

function parseName(text: string): string {
  if (text === '') throw new UpstreamFormatError('the host is missing');
  const isAscii = /^[\x21-\x7e]+$/.test(text);
  const name = canonicalHostname(text);
  if (isAscii && isIPv4(name)) return name;
  // Resolvers read 127.1, 0x7f.1 and 2130706433 as addresses, and URL parsers read digits of other scripts. People who
  // read the list of tunnels do not.
  if (hostnameFlaws(name).includes('ends in a number')) {
    throw new UpstreamFormatError('an IPv4 address must have four decimal numbers without leading zeros');
  }
  if (!isHostname(name, 'underscore')) {
    throw new UpstreamFormatError('the host is neither a name nor an IP address');
  }
  return name;
}

function hasSpaceOrControl(text: string): boolean {
  // \s includes white space of Unicode. A NUL would truncate the text in system calls.
  return /\s|\p{Cc}/u.test(text);
}
