import { hostPort, parseAddress, parseCidr, withoutBrackets } from './ip-address.ts';

export interface ProxyServer {
  kind: 'http' | 'https' | 'socks5';
  host: string;
  port: number;
  /** Null: no authentication. */
  credentials: { user: string; password: string } | null;
}

export interface Destination {
  /** Name or address; an IPv6 address without brackets. */
  host: string;
  port: number;
}

/** Chooses the proxy of each connection. */
export interface ProxyRules {
  /** For TLS. */
  https: ProxyServer | null;
  /** For plain HTTP. */
  http: ProxyServer | null;
  /** For destinations without a specific proxy. */
  all: ProxyServer | null;
  /** Whether a destination bypasses the proxies. */
  exempt: (destination: Destination) => boolean;
}

export const NO_PROXIES: ProxyRules = { https: null, http: null, all: null, exempt: () => true };

const DEFAULT_PORTS: Readonly<Record<ProxyServer['kind'], number>> = { http: 80, https: 443, socks5: 1080 };

/** The proxy for a connection; null: none. */
export function proxyFor(rules: ProxyRules, scheme: 'http' | 'https', destination: Destination): ProxyServer | null {
  if (rules.exempt(destination)) return null;
  return rules[scheme] ?? rules.all;
}

/** Formats a proxy's URL without its password. */
export function displayProxy({ kind, host, port }: ProxyServer): string {
  return `${kind}://${hostPort(host, port)}`;
}

/**
 * Parses a proxy's URL: `http://[user:password@]host[:port]`, `https://…`, `socks5://…` or `socks5h://…`. The default
 * scheme is http. The proxy always resolves the names.
 *
 * @throws {Error} without the password in its message
 */
export function parseProxy(text: string): ProxyServer {
  const withScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`;
  const scheme = withScheme.slice(0, withScheme.indexOf(':')).toLowerCase();
  const kind = scheme === 'socks5h' ? 'socks5' : scheme;
  if (kind !== 'http' && kind !== 'https' && kind !== 'socks5') throw new Error(`${scheme}:// is not supported`);
  // Parsed as http: the URL parser validates hosts and ports only for web schemes.
  const rest = `http://${withScheme.slice(withScheme.indexOf('://') + 3)}`;
  if (!URL.canParse(rest)) throw new Error('not a URL');
  const { hostname, username, password, pathname, search, hash } = new URL(rest);
  if (pathname !== '/' || search !== '' || hash !== '') throw new Error('contains a path');
  const port = /:(\d+)\/?$/.exec(rest)?.[1];
  return {
    kind,
    host: withoutBrackets(hostname),
    port: port === undefined ? DEFAULT_PORTS[kind] : Number(port),
    credentials: username === '' ? null : { user: decode(username), password: decode(password) },
  };
}

/**
 * Parses NO_PROXY: a comma-separated list of hosts (which include their subdomains), addresses and CIDRs, each with an
 * optional `:port`, or `*` for all destinations.
 *
 * @throws {Error} with the invalid entry in its message
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
  if (!/^[a-z0-9_.-]+$/.test(name)) throw new Error(`${entry}: not a host, an address or a CIDR such as 10.0.0.0/8`);
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
