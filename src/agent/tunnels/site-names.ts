import { randomInt } from 'node:crypto';
import { ApiError } from '../../lib/errors.ts';
import type { TunnelRequest } from './tunnel.ts';

/** The site that a device belongs to. Names of its tunnels are below its domain. */
export interface Site {
  /** For example `sitea.example.com`. */
  domain: string;
  /** The device's name at the site, which its authtoken allows as the end of a label; null: the whole site is its own. */
  deviceName: string | null;
}

/**
 * The domain to ask the gateway for (null: the gateway chooses), and this device's own name for when somebody else has it
 * (null: none).
 */
export type DomainChoice = readonly [domain: string | null, otherwise: string | null];

const LONGEST_LABEL = 63;
const LETTERS = 'abcdefghijklmnopqrstuvwxyz';
/** The gateway's codes for a name that the authtoken may not bind, and for one that is online elsewhere. */
const TAKEN = ['ERR_NGROK_316', 'ERR_NGROK_334'];

/**
 * The domain of a new tunnel of a device that belongs to a site. A single label means a name directly below the site, or
 * one of this device if somebody else has that; no domain means a random one of this device.
 *
 * @param site null: none, then the request is unchanged
 */
export function domainAtSite(
  { protocol, domain }: Pick<TunnelRequest, 'protocol' | 'domain'>,
  site: Site | null,
): DomainChoice {
  const wanted = domain ?? null;
  if (site === null || !isLabel({ protocol, domain: wanted ?? '' })) return [wanted, null];
  const own = site.deviceName === null ? '' : `-${site.deviceName}`;
  if (wanted === null) return [`${randomLabel()}${own}.${site.domain}`, null];
  const isOwn = own === '' || wanted.endsWith(own) || wanted.length + own.length > LONGEST_LABEL;
  return [`${wanted}.${site.domain}`, isOwn ? null : `${wanted}${own}.${site.domain}`];
}

/** Whether a domain is a single label, which a site completes. */
export function isLabel({ protocol, domain }: { protocol: string; domain: string }): boolean {
  return protocol !== 'tcp' && !/[.:]/.test(domain);
}

/** The domains that a tunnel with this one can have, the one in the request included. */
export function domainsFor(
  request: { protocol: TunnelRequest['protocol']; domain: string },
  site: Site | null,
): string[] {
  return [...new Set([request.domain, ...domainAtSite(request, site)])].filter((each) => each !== null);
}

/**
 * Opens the wanted domain, or the device's own one if somebody else has that.
 *
 * @returns what was opened, the domain that was asked for, and why it is not the wanted one; null: it is
 */
export async function openChoice<T>(
  [domain, otherwise]: DomainChoice,
  open: (domain: string | null) => Promise<T>,
): Promise<{ opened: T; domain: string | null; reason: string | null }> {
  try {
    return { opened: await open(domain), domain, reason: null };
  } catch (error) {
    const isTaken = otherwise !== null && error instanceof ApiError && TAKEN.includes(error.code);
    if (!isTaken) throw error;
    return { opened: await open(otherwise), domain: otherwise, reason: error.message };
  }
}

/** Six letters: short enough beside the longest name of a device. */
function randomLabel(): string {
  return Array.from({ length: 6 }, () => LETTERS[randomInt(LETTERS.length)]).join('');
}
