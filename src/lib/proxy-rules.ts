import { parseCidr } from './cidr.ts';
import { hostPort, parseAddress } from './ip-address.ts';

/** A proxy that connections are made through. */
export interface ProxyServer {
  kind: 'http' | 'https' | 'socks5';
  host: string;
  port: number;
  /** Null: it wants none. */
  credentials: { user: string; password: string } | null;
}

/** Where a connection is to go. */
export interface Destination {
  /** Name or address; an IPv6 address without brackets. */
  host: string;
  port: number;
}

/** Which connections go through which proxy. */
export interface ProxyRules {
  /** For TLS. */
  https: ProxyServer | null;
  /** For plain HTTP. */
  http: ProxyServer | null;
  /** For whatever has none of its own. */
  all: ProxyServer | null;
  /** Whether a destination is reached without a proxy. */
  exempt: (destination: Destination) => boolean;
}

export const NO_PROXIES: ProxyRules = { https: null, http: null, all: null, exempt: () => true };

const DEFAULT_PORTS: Readonly<Record<ProxyServer['kind'], number>> = { http: 80, https: 443, socks5: 1080 };

/** The proxy for a connection; null: it goes straight. */
export function proxyFor(rules: ProxyRules, scheme: 'http' | 'https', destination: Destination): ProxyServer | null {
  if (rules.exempt(destination)) return null;
  return rules[scheme] ?? rules.all;
}

/** A proxy for people, without its password. */
export function displayProxy({ kind, host, port }: ProxyServer): string {
  return `${kind}://${hostPort(host, port)}`;
}

/**
 * Reads a proxy's URL: `http://[user:password@]host[:port]`, `https://…`, `socks5://…` (or `socks5h://…`; names are
 * always resolved by the proxy); without a scheme it is http, as elsewhere.
 *
 * @throws {Error} saying what is wrong, never with the password
 */
export function parseProxy(text: string): ProxyServer {
  const withScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`;
  const scheme = withScheme.slice(0, withScheme.indexOf(':')).toLowerCase();
  const kind = scheme === 'socks5h' ? 'socks5' : scheme;
  if (kind !== 'http' && kind !== 'https' && kind !== 'socks5') throw new Error(`${scheme}:// is not known here`);
  // As http, for the URL parser knows hosts and ports of the schemes of the web alone.
  const rest = `http://${withScheme.slice(withScheme.indexOf('://') + 3)}`;
  if (!URL.canParse(rest)) throw new Error('it is not a URL');
  const { hostname, username, password, pathname, search, hash } = new URL(rest);
  if (pathname !== '/' || search !== '' || hash !== '') throw new Error('a proxy has no path');
  const port = /:(\d+)\/?$/.exec(rest)?.[1];
  return {
    kind,
    host: hostname.replace(/^\[|\]$/g, ''),
    port: port === undefined ? DEFAULT_PORTS[kind] : Number(port),
    credentials: username === '' ? null : { user: decode(username), password: decode(password) },
  };
}

/**
 * Reads NO_PROXY: a comma-separated list of hosts (with all names below them), addresses and networks such as
 * 10.0.0.0/8, each with an optional `:port`, or `*` for everything.
 *
 * @throws {Error} naming the entry that is none of these
 */
export function parseNoProxy(text: string): ProxyRules['exempt'] {
  const entries = text
    .split(',')
    .map((entry) => entry.trim().toLowerCase())
    .filter((entry) => entry !== '')
    .map(parseEntry);
  return (destination) => entries.some((matches) => matches(destination));
}

function parseEntry(entry: string): ProxyRules['exempt'] {
  if (entry === '*') return () => true;
  const [, bracketed, plain, ports] = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d{1,5}))?$/.exec(entry) ?? [];
  const subject = bracketed ?? plain ?? entry;
  const isPort = ({ port }: Destination) => ports === undefined || Number(ports) === port;
  const network = parseCidr(subject);
  if (network) {
    return (destination) => {
      const address = parseAddress(destination.host);
      return isPort(destination) && address !== null && network.contains(address);
    };
  }
  const name = subject.replace(/^\*?\./, '').replace(/\.$/, '');
  if (!/^[a-z0-9_.-]+$/.test(name)) throw new Error(`${entry}: not a host, an address or a network such as 10.0.0.0/8`);
  return (destination) => {
    const host = destination.host.toLowerCase();
    return isPort(destination) && (host === name || host.endsWith(`.${name}`));
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a lone % stands for itself
  }
}
