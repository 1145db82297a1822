import { randomInt } from 'node:crypto';
import { AgentError } from '../errors/agent-error.ts';
import type { TunnelRequest } from './tunnel.ts';

/** The site that a device belongs to. Names of its tunnels are below its domain. */
export interface Site {
  /** For example `sitea.example.com`. */
  domain: string;
  /** The device's name at the site, which its authtoken allows as the end of a label; null: the whole site is its own. */
  deviceName: string | null;
}

const LONGEST_LABEL = 63;
const LETTERS = 'abcdefghijklmnopqrstuvwxyz';

/**
 * The domain of a new tunnel of a device that belongs to a site. A single label means a name of this device below the
 * site, and no domain a random one.
 *
 * @param site null: none, then the request is unchanged
 * @throws {AgentError} 400 when the label is too long
 */
export function domainAtSite({ protocol, domain }: TunnelRequest, site: Site | null): string | null {
  const wanted = domain ?? null;
  if (site === null || protocol === 'tcp' || wanted?.includes('.')) return wanted;
  const label = wanted ?? randomLabel();
  const own = site.deviceName === null ? '' : `-${site.deviceName}`;
  const full = own !== '' && label.endsWith(own) ? label : label + own;
  if (full.length <= LONGEST_LABEL) return `${full}.${site.domain}`;
  const problem = `the label ${full} has more than ${LONGEST_LABEL} characters`;
  throw new AgentError('ERR_AGENT_INVALID_REQUEST', `domain: ${problem}; choose a shorter one`, {
    details: { domain: problem },
  });
}

/** Six letters: short enough beside the longest name of a device. */
function randomLabel(): string {
  return Array.from({ length: 6 }, () => LETTERS[randomInt(LETTERS.length)]).join('');
}
