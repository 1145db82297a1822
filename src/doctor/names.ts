import { isIP } from 'node:net';
import type { GatewayLink } from '../agent/open-link.ts';
import { hasErrno, messageOf } from '../lib/errors.ts';
import { addressesOf } from '../lib/network/loopback-names.ts';
import { displayProxy } from '../lib/network/proxy-rules.ts';
import { withDeadline } from '../lib/time/deadline.ts';
import { type Check, check, failed, ok, type Result, skipped, summarize } from './finding.ts';

const LOOKUP_MS = 5_000;
/** Names to look up: getaddrinfo has few threads, and an unresponsive name server blocks each for seconds. */
const MAX_NAMES = 50;

const CHECK_NAME_SERVER = 'check the network and its name server (resolvectl status, /etc/resolv.conf)';

export type Resolve = (name: string) => Promise<string[]>;

export const systemResolve: Resolve = async (name) => {
  const found = await withDeadline(addressesOf(name), `resolving ${name}`, LOOKUP_MS);
  return found.map(({ address }) => address);
};

/** Checks that the gateway's name resolves here; null: the gateway is embedded. */
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
 * Checks that the tunnels' domains resolve.
 *
 * @param domains hostnames; those of tcp tunnels with a port
 * @param isEmbedded names of the embedded gateway only resolve in browsers and curl on this machine
 */
export function domainNamesCheck(domains: Promise<readonly string[]>, isEmbedded: boolean, resolve: Resolve): Check {
  return check('domains-dns', 'DNS of the domains', async () => {
    // Only the gateway's policies use internal names.
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
