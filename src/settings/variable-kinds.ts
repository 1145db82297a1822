import { isIP, isIPv4, isIPv6 } from 'node:net';
import type { PortRange } from '../lib/port-range.ts';
import { type ProxyRules, type ProxyServer, parseNoProxy, parseProxy } from '../lib/proxy-rules.ts';

/** A variable of the environment: what it defaults to and what may stand in it. */
export interface Variable<T> {
  /** Used when the variable is absent or empty; null: there is none. */
  default: string | null;
  /** What may stand in it, for the error and the documentation. */
  allowed: string;
  /** A secret is never shown in an error. */
  secret?: boolean;
  /** @throws when the text is not allowed; the message may say more than `allowed` */
  parse: (text: string) => T;
}

export const text = (allowed: string, fallback: string | null = null): Variable<string> => ({
  default: fallback,
  allowed,
  parse: (value) => value,
});

export const secret = (allowed: string): Variable<string> => ({
  default: null,
  allowed,
  secret: true,
  parse: (value) => {
    // As in a file: what it was copied from ends in a line break, or was written on Windows.
    const token = value.trim();
    if (/^(["']).*\1$/.test(token)) throw new Error('it stands in quotation marks, which docker run --env-file leaves');
    if (!/^[\x21-\x7e]+$/.test(token)) throw new Error('it is blank, or holds a blank or a character outside ASCII');
    return token;
  },
});

const KEY_BYTES = 32;

export const encryptionKey: Variable<string> = {
  ...secret(`${KEY_BYTES} random bytes in base64: openssl rand -base64 ${KEY_BYTES}`),
  parse: (value) => {
    const { length } = Buffer.from(value.trim(), 'base64');
    if (length !== KEY_BYTES) throw new Error(`it holds ${length} bytes`);
    return value.trim();
  },
};

export const port = (fallback: number | null): Variable<number> => ({
  default: fallback === null ? null : String(fallback),
  allowed: 'a port from 0 to 65535; 0 means any free one',
  parse: (value) => {
    if (!/^\d{1,5}$/.test(value) || Number(value) > 65535) throw new Error('not a port');
    return Number(value);
  },
});

/** Null for none. */
export const portRange = (fallback: string): Variable<PortRange | null> => ({
  default: fallback,
  allowed: 'a range of ports such as 20000-20999, one port, or off',
  parse: (value) => {
    if (value.toLowerCase() === 'off') return null;
    const [, first = '', last = first] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(value) ?? [];
    const range = { first: Number(first), last: Number(last) };
    if (range.first < 1 || range.last > 65_535 || range.first > range.last) throw new Error('not a range of ports');
    return range;
  },
});

export const oneOf = <T extends string>(values: readonly T[], fallback: T): Variable<T> => ({
  default: fallback,
  allowed: `one of ${values.join(', ')}`,
  parse: (value) => {
    const found = values.find((candidate) => candidate === value.toLowerCase());
    if (found === undefined) throw new Error('not one of them');
    return found;
  },
});

export const hostname = (
  fallback: string | null,
  allowed = 'a hostname such as agent.example.com',
): Variable<string> => ({
  default: fallback,
  allowed,
  parse: parseHostname,
});

function parseHostname(value: string): string {
  const name = value.toLowerCase().replace(/\.$/, '');
  if (name.length > 253 || !/^(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*$/.test(name)) {
    throw new Error('not a hostname');
  }
  if (/(?:^|\.)\d+$/.test(name)) throw new Error('it ends in a number, as addresses do');
  return name;
}

export const ipAddress = (allowed: string, fallback: string | null = null): Variable<string> => ({
  default: fallback,
  allowed,
  parse: (value) => {
    if (isIP(value) === 0) throw new Error('not an IP address');
    return value;
  },
});

/** Where to listen. */
export const ownHost = (fallback: string): Variable<string> => ({
  default: fallback,
  allowed: 'an IP address (of IPv6 without brackets) or a name of this machine, without a port',
  parse: (value) => (isIP(value) === 0 ? parseHostname(value) : value),
});

export const count = (fallback: number, max: number, allowed: string, min = 0): Variable<number> => ({
  default: String(fallback),
  allowed: min === 0 ? `${allowed}, at most ${max}` : `${allowed}, from ${min} to ${max}`,
  parse: (value) => {
    if (!/^\d{1,12}$/.test(value) || Number(value) < min || Number(value) > max) throw new Error('not such a number');
    return Number(value);
  },
});

export const origin: Variable<string> = {
  default: null,
  allowed: 'an origin without a path, such as https://api.gateway.example.com',
  parse: (value) => {
    const url = URL.canParse(value) ? new URL(value) : null;
    if (!url || !/^https?:$/.test(url.protocol) || url.pathname !== '/' || url.search || url.hash || url.username) {
      throw new Error('not an origin');
    }
    return url.origin;
  },
};

export const hostAndPort: Variable<string> = {
  default: null,
  allowed: 'host:port, such as connect.example.com:443; host may be a name or an address, of IPv6 in brackets',
  parse: (value) => {
    const [, bracketed, plain = '', number] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(value) ?? [];
    if (!(Number(number) >= 1 && Number(number) <= 65535)) throw new Error('not host:port');
    if (bracketed === undefined && !isIPv4(plain)) parseHostname(plain);
    if (bracketed !== undefined && !isIPv6(bracketed)) throw new Error('not an IPv6 address in brackets');
    return value.toLowerCase();
  },
};

/** Secret, as it may hold a password. */
export const proxy: Variable<ProxyServer> = {
  default: null,
  allowed: 'http://, https:// or socks5://, then [user:password@]host:port',
  secret: true,
  parse: parseProxy,
};

export const noProxy: Variable<ProxyRules['exempt']> = {
  default: null,
  allowed: 'a comma-separated list of hosts, addresses and networks, each with an optional :port, or *',
  parse: parseNoProxy,
};

export const email: Variable<string> = {
  default: null,
  allowed: 'an e-mail address',
  parse: (value) => {
    if (!/^[^\s@<>,?]+@[^\s@<>,?]+$/.test(value)) throw new Error('not an e-mail address');
    return value;
  },
};

/** Certificate authorities that have a name here. */
export const AUTHORITIES: Readonly<Record<string, string>> = {
  letsencrypt: 'https://acme-v02.api.letsencrypt.org/directory',
  'letsencrypt-staging': 'https://acme-staging-v02.api.letsencrypt.org/directory',
};
export const OWN_AUTHORITY = 'local';

export const acmeDirectory: Variable<string> = {
  default: null,
  allowed: `${OWN_AUTHORITY}, ${Object.keys(AUTHORITIES).join(', ')} or the https URL of an ACME directory`,
  parse: (value) => {
    const word = value.toLowerCase();
    if (word === OWN_AUTHORITY) return word;
    const url = AUTHORITIES[word] ?? value;
    if (!URL.canParse(url) || new URL(url).protocol !== 'https:') throw new Error('not one of them');
    return url;
  },
};

export const resolvers: Variable<string[]> = {
  default: null,
  allowed: 'a comma-separated list of IP addresses, each with an optional :port ([…]:port for IPv6)',
  parse: (value) => {
    const list = value.split(',').map((item) => item.trim());
    if (!list.every(isResolver)) throw new Error('not such a list');
    return list;
  },
};

function isResolver(text: string): boolean {
  if (isIP(text) !== 0) return true;
  const [, bracketed, plain, number] = /^(?:\[(.+)\]|([\d.]+)):(\d{1,5})$/.exec(text) ?? [];
  const isAddress = bracketed === undefined ? isIPv4(plain ?? '') : isIPv6(bracketed);
  return isAddress && Number(number) >= 1 && Number(number) <= 65535;
}
