import { isIP, isIPv4, isIPv6 } from 'node:net';
import { type BudgetPlan, parseBudgetPlan } from '../lib/budget-plan.ts';
import { isHostname } from '../lib/network/hostname-grammar.ts';
import { type Cidr, cidrList } from '../lib/network/ip-address.ts';
import { type PortRange, parsePortRange } from '../lib/network/port-range.ts';
import { parsePostgresUrl } from '../lib/network/postgres-url.ts';
import { type ProxyRules, type ProxyServer, parseNoProxy, parseProxy } from '../lib/network/proxy-rules.ts';

/** A setting: an environment variable with its meaning, its default and the values that it allows. */
export interface Variable<T> {
  /** What it configures, as docs/settings.md and .env.example say it. */
  meaning: string;
  /** Used when the variable is absent or empty; null: no value. */
  default: string | null;
  /** What applies when there is neither a value nor a default. */
  otherwise?: string;
  /** Which values are allowed, for error messages and the documentation. */
  allowed: string;
  /** A value for .env.example when there is no default. */
  example?: string;
  /** Secrets never appear in error messages. */
  secret?: boolean;
  /** @throws when the value is not allowed; the message may say more than `allowed` */
  parse: (text: string) => T;
}

/** A setting that has a value in any case. */
export type Defaulted<T> = Variable<T> & { default: string };

/** Optional members of most kinds of settings. */
type Extras = Partial<Pick<Variable<unknown>, 'default' | 'otherwise' | 'allowed' | 'example'>>;
type Kind<T, E> = E extends { default: string } ? Defaulted<T> : Variable<T>;

const kind = <T, E extends Extras>(meaning: string, allowed: string, parse: (text: string) => T, extras?: E) =>
  ({ meaning, default: null, allowed, parse, ...extras }) as unknown as Kind<T, E>;

export const text = <E extends Extras>(meaning: string, allowed: string, extras?: E) =>
  kind(meaning, allowed, (value) => value, extras);

export const file = (meaning: string, example: string, extras?: Extras) =>
  text(meaning, 'the path of a file', { example, ...extras });

export const secret = (meaning: string, allowed: string, extras?: Extras): Variable<string> => ({
  ...kind(meaning, allowed, parseSecret, extras),
  secret: true,
});

function parseSecret(value: string): string {
  // Copied values may end in a line break.
  const token = value.trim();
  if (/^(["']).*\1$/.test(token)) throw new Error('remove the quotation marks, which docker run --env-file keeps');
  if (!/^[\x21-\x7e]+$/.test(token)) throw new Error('empty, or contains spaces or non-ASCII characters');
  return token;
}

export const databaseUrl = (meaning: string, extras?: Extras): Variable<string> => ({
  ...kind(meaning, 'a URL such as postgres://user:password@host:5432/database', parseDatabaseUrl, extras),
  secret: true,
});

function parseDatabaseUrl(value: string): string {
  parsePostgresUrl(value);
  return value;
}

const KEY_BYTES = 32;

export const encryptionKey = (meaning: string, extras: Extras): Variable<string> => ({
  ...secret(
    meaning,
    `${KEY_BYTES} random bytes in base64 (openssl rand -base64 ${KEY_BYTES}), or two of these separated by a comma while the key is changed`,
    extras,
  ),
  parse: (value) => {
    const keys = value.split(',').map((key) => key.trim());
    const wrong = keys.map((key) => Buffer.from(key, 'base64').length).find((length) => length !== KEY_BYTES);
    if (wrong !== undefined) throw new Error(`contains ${wrong} bytes`);
    if (keys.length > 2) throw new Error(`contains ${keys.length} keys`);
    return keys.join(',');
  },
});

export const port = <E extends Extras>(meaning: string, extras?: E) =>
  kind(meaning, 'a port from 0 to 65535; 0: any free port', parsePort, extras);

function parsePort(value: string): number {
  if (!/^\d{1,5}$/.test(value) || Number(value) > 65535) throw new Error('not a port');
  return Number(value);
}

/** Parses to null for `off`. */
export const portRange = (meaning: string, fallback: string): Defaulted<PortRange | null> =>
  kind(meaning, 'a range such as 20000-20999, one port, or off', portRangeOrOff, { default: fallback });

function portRangeOrOff(value: string): PortRange | null {
  return value.toLowerCase() === 'off' ? null : parsePortRange(value);
}

export const oneOf = <T extends string>(meaning: string, values: readonly T[], fallback: T): Defaulted<T> => {
  const parse = (value: string): T => {
    const found = values.find((candidate) => candidate === value.toLowerCase());
    if (found === undefined) throw new Error('not supported');
    return found;
  };
  return kind(meaning, `one of ${values.join(', ')}`, parse, { default: String(fallback) });
};

export const flag = (meaning: string, fallback: boolean): Defaulted<boolean> => {
  const { parse, ...rest } = oneOf(meaning, ['true', 'false'], fallback ? 'true' : 'false');
  return { ...rest, parse: (value) => parse(value) === 'true' };
};

export const hostname = <E extends Extras>(meaning: string, extras?: E) =>
  kind(meaning, 'a hostname', parseOwnName, extras);

function parseOwnName(value: string): string {
  const name = value.toLowerCase().replace(/\.$/, '');
  if (!isHostname(name, 'ends in a number')) throw new Error('not a hostname');
  if (!isHostname(name)) throw new Error('ends in a number, like an IP address');
  return name;
}

export const deviceLabel = (meaning: string, extras?: Extras): Variable<string> =>
  kind(meaning, 'letters, digits and single inner hyphens, at most 40', parseDeviceLabel, extras);

function parseDeviceLabel(value: string): string {
  const name = value.toLowerCase();
  if (name.length > 40 || !/^[a-z0-9]+(-[a-z0-9]+)*$/.test(name)) throw new Error('not the name of a device');
  return name;
}

/** Sites and hostnames; `*`: everything. */
export const probedNames = (meaning: string, extras?: Extras): Variable<string[]> =>
  kind(
    meaning,
    'a comma-separated list of hostnames, which stand for all names below them as well; `*` for all',
    parseProbedNames,
    extras,
  );

function parseProbedNames(value: string): string[] {
  return value.split(',').map((item) => (item.trim() === '*' ? '*' : parseOwnName(item.trim().replace(/^\*\./, ''))));
}

export const ipAddress = <E extends Extras>(meaning: string, extras?: E) =>
  kind(meaning, 'an IP address of this machine', parseIp, extras);

function parseIp(value: string): string {
  if (isIP(value) === 0) throw new Error('not an IP address');
  return value;
}

/** Where to listen. */
export const listenHost = (meaning: string, fallback: string): Defaulted<string> => {
  const allowed = 'an IP address (IPv6 without brackets) or a name of this machine, without a port';
  const parse = (value: string) => (isIP(value) === 0 ? parseOwnName(value) : value);
  return kind(meaning, allowed, parse, { default: fallback });
};

export const count = (meaning: string, fallback: number, max: number, min = 0): Defaulted<number> => {
  const parse = (value: string): number => {
    const number = Number(value);
    if (!/^\d{1,12}$/.test(value) || number < min || number > max) throw new Error('not a number in this range');
    return number;
  };
  return kind(meaning, `a whole number from ${min} to ${max}`, parse, { default: String(fallback) });
};

/** A number that the program chooses when it is not set; `otherwise` says how. */
export const chosenCount = (meaning: string, otherwise: string, max: number, min = 0): Variable<number> => {
  const { parse, ...rest } = count(meaning, min, max, min);
  return kind(meaning, rest.allowed ?? '', parse, { otherwise });
};

export const origin = (meaning: string, extras?: Extras): Variable<string> =>
  kind(meaning, 'an http(s) origin without a path', parseOrigin, {
    example: 'https://api.gateway.example.com',
    ...extras,
  });

function parseOrigin(value: string): string {
  const url = URL.canParse(value) ? new URL(value) : null;
  if (!url || !/^https?:$/.test(url.protocol) || url.pathname !== '/' || url.search || url.hash || url.username) {
    throw new Error('not an origin');
  }
  return url.origin;
}

export const hostAndPort = (meaning: string, extras?: Extras): Variable<string> =>
  kind(meaning, 'host:port; the host is a name or an IP address, IPv6 in brackets', parseHostAndPort, extras);

function parseHostAndPort(value: string): string {
  const [, bracketed, plain = '', number] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(value) ?? [];
  if (!(Number(number) >= 1 && Number(number) <= 65535)) throw new Error('not host:port');
  if (bracketed === undefined && !isIPv4(plain)) parseOwnName(plain);
  if (bracketed !== undefined && !isIPv6(bracketed)) throw new Error('not an IPv6 address in brackets');
  return value.toLowerCase();
}

export const cidrs = (meaning: string, extras?: Extras): Variable<Cidr[]> =>
  kind(
    meaning,
    'a comma-separated list of IP addresses and CIDRs',
    (value) => cidrList(value.split(',').map((item) => item.trim())),
    extras,
  );

/** A secret, as it may contain a password. */
export const proxy = (meaning: string, example: string): Variable<ProxyServer> => ({
  ...kind(meaning, 'http://, https:// or socks5://, then [user:password@]host:port', parseProxy, { example }),
  secret: true,
});

export const noProxy = (meaning: string, example: string): Variable<ProxyRules['exempt']> =>
  kind(
    meaning,
    'a comma-separated list of hosts, IP addresses and CIDRs, each with an optional :port; or *',
    parseNoProxy,
    { example },
  );

/** Daily backups. */
export interface BackupPlan {
  readonly folder: string;
  /** When each day, by the clock of the machine, 0 to 23. */
  readonly hour: number;
  /** How many are kept. */
  readonly keep: number;
}

const MAX_BACKUPS = 1000;

export const budgetPlan = (meaning: string): Variable<BudgetPlan> =>
  kind(
    meaning,
    'an amount of at least 1 MB, /day, /week or /month, and perhaps @ with the day that it begins on',
    parseBudgetPlan,
    { otherwise: 'no limit', example: '50MB/month@15' },
  );

export const backupPlan = (meaning: string): Variable<BackupPlan> =>
  kind(
    meaning,
    `a folder, or a folder, an hour from 0 to 23 and how many to keep, 1 to ${MAX_BACKUPS}, with commas between them`,
    parseBackupPlan,
    { otherwise: 'no daily backups', example: '/var/backups/gateway,3,7' },
  );

function parseBackupPlan(value: string): BackupPlan {
  const [folder = '', hour = '3', keep = '7', ...more] = value.split(',').map((part) => part.trim());
  const isWhole = [hour, keep].every((part) => /^\d{1,4}$/.test(part));
  if (folder === '' || more.length > 0 || !isWhole) throw new Error('not these three');
  if (Number(hour) > 23 || Number(keep) < 1 || Number(keep) > MAX_BACKUPS)
    throw new Error('hour or number out of range');
  return { folder, hour: Number(hour), keep: Number(keep) };
}

export const email = (meaning: string, extras?: Extras): Variable<string> =>
  kind(meaning, 'an e-mail address', parseEmail, { example: 'ops@example.com', ...extras });

function parseEmail(value: string): string {
  if (!/^[^\s@<>,?]+@[^\s@<>,?]+$/.test(value)) throw new Error('not an e-mail address');
  return value;
}

/** ACME certificate authorities that have a short name. */
export const ACME_DIRECTORIES: Readonly<Record<string, string>> = {
  letsencrypt: 'https://acme-v02.api.letsencrypt.org/directory',
  'letsencrypt-staging': 'https://acme-staging-v02.api.letsencrypt.org/directory',
};
export const LOCAL_CA = 'local';

export const acmeDirectory = (meaning: string, extras: Extras): Variable<string> => {
  const allowed = `${LOCAL_CA}, ${Object.keys(ACME_DIRECTORIES).join(', ')} or the https URL of an ACME directory`;
  return kind(meaning, allowed, parseAcmeDirectory, extras);
};

function parseAcmeDirectory(value: string): string {
  const word = value.toLowerCase();
  if (word === LOCAL_CA) return word;
  const url = ACME_DIRECTORIES[word] ?? value;
  if (!URL.canParse(url) || new URL(url).protocol !== 'https:') throw new Error('not supported');
  return url;
}

export const resolvers = (meaning: string, extras?: Extras): Variable<string[]> =>
  kind(
    meaning,
    'a comma-separated list of IP addresses, each with an optional :port ([…]:port for IPv6)',
    parseResolvers,
    extras,
  );

function parseResolvers(value: string): string[] {
  const list = value.split(',').map((item) => item.trim());
  if (!list.every(isResolver)) throw new Error('not a list of resolvers');
  return list;
}

function isResolver(text: string): boolean {
  if (isIP(text) !== 0) return true;
  const [, bracketed, plain, number] = /^(?:\[(.+)\]|([\d.]+)):(\d{1,5})$/.exec(text) ?? [];
  const isAddress = bracketed === undefined ? isIPv4(plain ?? '') : isIPv6(bracketed);
  return isAddress && Number(number) >= 1 && Number(number) <= 65535;
}
