import { isDeepStrictEqual } from 'node:util';
import { callAgent } from '../../agent/api-client.ts';
import { membersOf, readSavedTunnels, type Tunnel } from '../../agent/offline/saved-tunnels.ts';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import type { Settings } from '../../settings/agent-settings.ts';
import { show } from '../output.ts';
import { agentSettings } from '../settings-place.ts';

interface MoveOptions {
  /** Such as `*.localhost`. */
  from: string;
  /** Such as `*.sitea.example.com`; left out: the names beside the agent's own domain. */
  to?: string;
  json?: boolean;
}

interface Move {
  domain: string;
  /** Its new URL; null: it was not moved. */
  url: string | null;
  /** Why it was not moved; null: it was. */
  reason: string | null;
}

/**
 * Moves tunnels to other names, for example those of a trial on this machine to the domain of a site: starts each under
 * its new name, then deletes the old one. Repeatable.
 *
 * @throws {OperatorError} exit code 2 for patterns without a wildcard, 3 without an agent, 1 when a tunnel was not moved
 */
export async function moveTunnels(options: MoveOptions): Promise<void> {
  const settings = agentSettings('data');
  const from = baseOf(options.from, '--from');
  const to = options.to ?? besideAgent(settings.api.domain, from);
  if (!/^\*[.-]./.test(to)) throw new OperatorError(`--to ${to}: not a wildcard, such as '*.sitea.example.com'`, 2);
  // Reports an unreachable agent once instead of for every tunnel.
  await callAgent(settings, 'GET /status');
  const { tunnels } = await readSavedTunnels(settings.dataDir);
  const moves: Move[] = [];
  for (const tunnel of tunnels) {
    const name = nameBelow(tunnel, from);
    if (name !== null) moves.push(await move(tunnel, domainAt(name, to), tunnels, settings));
  }
  show(moves, options, (shown) => describe(shown, options.from));
  const failed = moves.filter(({ reason }) => reason !== null).length;
  if (failed > 0) throw new OperatorError(`${failed} of ${moves.length} tunnels not moved`);
}

function baseOf(pattern: string, option: string): string {
  if (!/^\*\../.test(pattern))
    throw new OperatorError(`${option} ${pattern}: not a wildcard, such as '*.localhost'`, 2);
  return pattern.slice(2).toLowerCase();
}

/** An agent at `agent-cabinet7.sitea.example.com` may use the names `*-cabinet7.sitea.example.com`. */
function besideAgent(domain: string | null, from: string): string {
  const found = /^agent([.-].+)$/.exec(domain ?? '')?.[1];
  if (found !== undefined && !found.endsWith(`.${from}`)) return `*${found}`;
  throw new OperatorError("where to is unknown: add --to, for example --to '*.sitea.example.com'", 2);
}

/** The part of a tunnel's name below a domain; empty for a tcp address; null: the tunnel stays. */
function nameBelow({ protocol, domain }: Tunnel, base: string): string | null {
  if (protocol === 'tcp') {
    const host = domain.replace(/:\d+$/, '');
    return host === base || host.endsWith(`.${base}`) ? '' : null;
  }
  return domain.endsWith(`.${base}`) ? domain.slice(0, -base.length - 1) : null;
}

/** @returns null: the gateway chooses an address */
function domainAt(name: string, to: string): string | null {
  if (name === '') return null;
  return to.startsWith('*-') ? name.replaceAll('.', '-') + to.slice(1) : name + to.slice(1);
}

async function move(
  tunnel: Tunnel,
  target: string | null,
  tunnels: readonly Tunnel[],
  settings: Settings,
): Promise<Move> {
  const { domain } = tunnel;
  try {
    const wanted = membersOf(tunnel);
    const there = tunnels.find((each) => each.domain === target);
    const isMoved = there && same(wanted, there);
    if (there && !isMoved) throw new OperatorError(`${target} is another tunnel here; delete one of them`);
    const body = { ...wanted, ...(target !== null && { domain: target }) };
    const url = isMoved ? there.url : (await callAgent(settings, 'POST /tunnels', { body })).url;
    await callAgent(settings, 'DELETE /tunnels/{url_part}', { url_part: domain });
    return { domain, url, reason: null };
  } catch (error) {
    return { domain, url: null, reason: messageOf(error).replace(/\n\s*/g, '; ') };
  }
}

/** An interrupted move has started the new tunnel, and not deleted the old one. */
function same(wanted: object, there: Tunnel): boolean {
  return isDeepStrictEqual(wanted, membersOf(there));
}

function describe(moves: readonly Move[], from: string): string {
  if (moves.length === 0) return `no tunnels at ${from}`;
  return moves
    .map(({ domain, url, reason }) =>
      reason === null ? `moved   ${domain} to ${url}` : `failed  ${domain}: ${reason}`,
    )
    .join('\n');
}
