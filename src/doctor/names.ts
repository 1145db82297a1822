import { promises as dns } from 'node:dns';
import { isIP } from 'node:net';
import type { GatewayLink } from '../agent/connectors/sdk/gateway-link.ts';
import { withDeadline } from '../lib/deadline.ts';
import { hasErrno, messageOf } from '../lib/errors.ts';
import { displayProxy } from '../lib/proxy-rules.ts';
import { type Check, check, failed, ok, type Result, skipped, summarize } from './finding.ts';

const LOOKUP_MS = 5_000;
/** Names that are asked for: getaddrinfo has few threads, and a silent name server keeps each for seconds. */
const MAX_NAMES = 50;

const CHECK_NAME_SERVER = 'check the network and its name server (resolvectl status, /etc/resolv.conf)';

/** Addresses of a name, as the system resolves it. */
export type Resolve = (name: string) => Promise<string[]>;

export const systemResolve: Resolve = async (name) => {
  const found = await withDeadline(dns.lookup(name, { all: true }), `resolving ${name}`, LOOKUP_MS);
  return found.map(({ address }) => address);
};

/** Whether the gateway's name is known here; null: the gateway is the embedded one. */
export function gatewayNameCheck(link: Pick<GatewayLink, 'address' | 'proxy'> | null, resolve: Resolve): Check {
  return check('gateway-dns', 'DNS of the gateway', async () => {
    if (!link) return skipped('embedded in the agent: needs no name');
    const { host } = link.address;
    if (isIP(host) !== 0) return skipped(`${host} is an address already`);
    if (link.proxy) return skipped(`${displayProxy(link.proxy)} resolves ${host}`);
    try {
      return ok(`${host} is ${(await resolve(host)).join(', ')}`);
    } catch (error) {
      return failed(`${host} has no address (${messageOf(error)})`, `${CHECK_NAME_SERVER}, and NGROK_SERVER_ADDR`);
    }
  });
}

/**
 * Whether the public finds the tunnels' names.
 *
 * @param domains a hostname each, for tcp with its port
 * @param isEmbedded its names are known to browsers and curl, on this machine
 */
export function domainNamesCheck(domains: Promise<readonly string[]>, isEmbedded: boolean, resolve: Resolve): Check {
  return check('domains-dns', 'DNS of the domains', async () => {
    // Internal names are for policies of the gateway alone.
    const named = (await domains)
      .map((domain) => domain.replace(/:\d+$/, ''))
      .filter((host) => !host.endsWith('.internal'));
    const hosts = [...new Set(named)];
    if (hosts.length === 0) return skipped('no public names');
    if (isEmbedded) return skipped('embedded gateway: names are for this machine only');
    const results = await Promise.all(hosts.slice(0, MAX_NAMES).map((host) => lookUp(host, resolve)));
    return summarize(results, (count) => (count === 1 ? '1 name resolves' : `${count} names resolve`));
  });
}

async function lookUp(host: string, resolve: Resolve): Promise<Result> {
  try {
    await resolve(host);
    return ok(host);
  } catch (error) {
    return failed(
      `${host} has no address (${messageOf(error)})`,
      hasErrno(error, 'EAI_AGAIN')
        ? CHECK_NAME_SERVER
        : "add the CNAME record that the reserved domain shows (cname_target), or for a name below the gateway's own " +
            'domain one to the gateway; DNS changes take time',
    );
  }
}
