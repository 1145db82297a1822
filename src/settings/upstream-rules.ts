import type { Stats } from 'node:fs';
import { lstat, realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { BoundedMap } from '../lib/bounded-map.ts';
import { hasErrno } from '../lib/errors.ts';
import { isHostname } from '../lib/network/hostname-grammar.ts';
import {
  type Cidr,
  cidrList,
  embeddedIpv4,
  type IpAddress,
  parseAddress,
  parseCidr,
} from '../lib/network/ip-address.ts';

/** A rule of AGENT_ALLOW_UPSTREAMS. */
type Rule = PortRange & ({ networks: readonly Cidr[] } | { host: string } | { suffix: string });

interface PortRange {
  from: number;
  to: number;
}

/** Keywords that stand for networks. */
const NETWORKS: Record<string, string[]> = {
  loopback: ['127.0.0.0/8', '::1/128'],
  private: ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'],
  any: ['0.0.0.0/0', '::/0'],
};

/**
 * Never allowed as upstreams: addresses that are not hosts, that reach this machine indirectly (on Linux, the unspecified
 * address connects to loopback), or that serve credentials of a cloud.
 */
const FORBIDDEN = cidrList([
  '0.0.0.0/8',
  '169.254.0.0/16', // link-local, with the metadata service of most clouds
  '224.0.0.0/4', // multicast
  '240.0.0.0/4', // reserved, with the broadcast address
  '100.100.100.200/32', // metadata of Alibaba Cloud
  '168.63.129.16/32', // Azure's host
  '192.0.0.192/32', // metadata of Oracle Cloud
  '::/128',
  'fe80::/10',
  'fec0::/10', // site-local, deprecated
  'ff00::/8',
  'fd00:ec2::/32', // metadata of AWS
  '2001::/32', // Teredo, which contains an inverted IPv4 address (RFC 4380)
  '64:ff9b:1::/48', // local-use NAT64 (RFC 8215): the position of the IPv4 address is unknown
  'fd20:ce::254/128', // metadata of Google Cloud
]);

/**
 * Folders of system sockets: those of docker, containerd and systemd give control of the machine. The keyword `unix`
 * excludes them; a rule such as `unix:/run/app.sock` can allow one.
 */
const SYSTEM_FOLDERS = ['/run', '/var', '/proc', '/sys', '/dev', '/etc'];

/** The upstreams that tunnels may use; see {@link parseUpstreamRules}. */
export class UpstreamRules {
  constructor(
    /** The setting's value, for messages. */
    readonly text: string,
    private readonly rules: readonly Rule[],
    private readonly ownSockets: boolean,
    private readonly socketPaths: readonly string[],
  ) {}

  /** Whether an address, resolved from `name` if given, is allowed. */
  allowsAddress(address: string, port: number, name?: string): boolean {
    const permitted = permittedAddress(address);
    if (permitted === null) return false;
    return this.rules.some((rule) => {
      if (port < rule.from || port > rule.to) return false;
      if ('networks' in rule) return isInAny(permitted, rule.networks);
      if (name === undefined) return false;
      return 'host' in rule ? name === rule.host : name.endsWith(rule.suffix);
    });
  }

  /**
   * Whether a tunnel may forward to a unix socket. Resolves symbolic links first, so that a link cannot hide a system
   * socket.
   *
   * @param path absolute; need not exist yet, as it is checked again for every connection
   */
  async allowsSocket(path: string): Promise<boolean> {
    try {
      return (await this.resolveSocket(path)) !== null;
    } catch (error) {
      if (!hasErrno(error, 'ENOENT')) throw error;
      const real = await realSocketPath(path);
      return this.#isListed(real) || this.#mayBeOwn(real);
    }
  }

  /**
   * Resolves the path of a socket for a connection. Connect to the returned path: links in the original one may change.
   *
   * @returns the path without links; null when it is not allowed
   * @throws the system's error, for example ENOENT
   */
  async resolveSocket(path: string): Promise<string | null> {
    const real = await realpath(path);
    return this.#isListed(real) || (this.#mayBeOwn(real) && isOwnAndOpen(await lstat(real))) ? real : null;
  }

  #isListed(real: string): boolean {
    return this.socketPaths.some((allowed) => real === allowed || isWithin(real, allowed));
  }

  #mayBeOwn(real: string): boolean {
    return this.ownSockets && !SYSTEM_FOLDERS.some((folder) => isWithin(real, folder));
  }
}

/**
 * Parses AGENT_ALLOW_UPSTREAMS: hosts, `*.suffix`, addresses, CIDRs, `loopback`, `private` and `any` (all addresses, no
 * unix sockets), each with an optional `:port` or `:from-to`, where IPv6 addresses need brackets. `unix` allows sockets
 * of the agent's user that are outside system folders and open to others; `unix:/path` allows one socket or all in a
 * folder.
 *
 * @throws {Error} with the invalid entry and the reason
 */
export function parseUpstreamRules(text: string): UpstreamRules {
  const entries = text.split(',').map((entry) => entry.trim());
  if (entries.includes('')) throw new Error('empty entry');
  const isSocket = (entry: string) => /^unix(?::|$)/i.test(entry);
  const sockets = entries.filter(isSocket).map((entry) => entry.slice('unix:'.length));
  for (const path of sockets) {
    if (path !== '' && !path.startsWith('/')) throw new Error(`unix:${path}: the path must be absolute`);
  }
  return new UpstreamRules(
    text,
    entries.filter((entry) => !isSocket(entry)).map(parseRule),
    entries.some((entry) => entry.toLowerCase() === 'unix'),
    sockets.filter((path) => path !== '').map((path) => path.replace(/(?<=.)\/+$/, '')),
  );
}

function parseRule(entry: string): Rule {
  const { subject, ports } = splitPorts(entry.toLowerCase());
  const networks = Object.hasOwn(NETWORKS, subject) ? NETWORKS[subject] : undefined;
  if (networks) return { ...ports, networks: cidrList(networks) };
  const network = parseCidr(subject);
  if (network) return { ...ports, networks: [network] };
  if (subject.includes('/')) throw new Error(`${entry}: not a CIDR such as 192.168.1.0/24 or fd00::/8`);
  const name = subject.replace(/^\*\./, '').replace(/\.$/, '');
  if (!isHostname(name, 'underscore')) {
    throw new Error(`${entry}: not a host, an address or a CIDR such as 192.168.1.0/24`);
  }
  return subject.startsWith('*.') ? { ...ports, suffix: `.${name}` } : { ...ports, host: name };
}

/** Splits off the ports: `host:80`, `host:8000-8999`, `[fd00::/8]:443`, `fd00::/8`. */
function splitPorts(entry: string): { subject: string; ports: PortRange } {
  const anyPort = { from: 1, to: 65535 };
  const bracketed = /^\[([^\]]+)\](?::(.*))?$/.exec(entry);
  const [subject, ports] = bracketed ? [bracketed[1] ?? '', bracketed[2]] : splitAtOnlyColon(entry);
  if (ports === undefined) return { subject, ports: anyPort };
  const range = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(ports);
  const from = Number(range?.[1]);
  const to = Number(range?.[2] ?? range?.[1]);
  if (!range || from < 1 || to > 65535 || from > to) {
    throw new Error(`${entry}: expected a port or a range such as 8000-8999 after the colon`);
  }
  return { subject, ports: { from, to } };
}

function splitAtOnlyColon(entry: string): [string, string | undefined] {
  const parts = entry.split(':');
  // More than one colon: an IPv6 address or network without brackets, hence without a port.
  return parts.length === 2 ? [parts[0] ?? '', parts[1]] : [entry, undefined];
}

const MAX_CACHED = 100;
/** Caches parsed addresses: a device has few upstreams, and parsing takes longer than matching. */
const cache = new BoundedMap<string, IpAddress | null>(MAX_CACHED);

/** @returns the address that rules apply to, an embedded IPv4 address if there is one; null for a forbidden address */
function permittedAddress(text: string): IpAddress | null {
  let permitted = cache.get(text);
  if (permitted === undefined) {
    const address = parseAddress(text);
    const effective = parseAddress(embeddedIpv4(text) ?? text);
    const isForbidden = address === null || effective === null || isInAny(address, FORBIDDEN);
    permitted = isForbidden || isInAny(effective, FORBIDDEN) ? null : effective;
    cache.set(text, permitted);
  }
  return permitted;
}

function isInAny(address: IpAddress, networks: readonly Cidr[]): boolean {
  return networks.some((network) => network.contains(address));
}

function isWithin(path: string, folder: string): boolean {
  return path.startsWith(folder === '/' ? '/' : `${folder}/`);
}

async function realSocketPath(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    if (!hasErrno(error, 'ENOENT') || dirname(path) === path) throw error;
    return join(await realSocketPath(dirname(path)), basename(path));
  }
}

/**
 * Excludes sockets that are closed to other users, such as an SSH agent's: API clients could use them with the agent's
 * permissions. The setting can name such a socket explicitly.
 */
function isOwnAndOpen({ uid, mode }: Stats): boolean {
  return uid === process.geteuid?.() && (mode & 0o007) !== 0;
}
