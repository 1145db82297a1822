import { AgentError } from '../errors/agent-error.ts';

interface Addressed {
  readonly url: string;
}

const DEFAULT_PORTS: Record<string, string> = { 'https:': '443', 'http:': '80', 'tls:': '443' };

/** The names of a URL from the most exact to the shortest: the whole URL, `host:port`, host, first label. */
function namesOf(url: string): readonly string[] {
  const { protocol, hostname, port } = new URL(url.toLowerCase());
  const label = hostname.split('.')[0] ?? '';
  return [url.toLowerCase(), `${hostname}:${port || DEFAULT_PORTS[protocol]}`, hostname, label];
}

/**
 * Finds tunnels by a part of their URL, and the shortest part for each. A part must equal one of {@link namesOf}, and
 * the more exact name wins: `cam` matches the host `cam` before the first label of `cam.example.com`.
 */
export class UrlParts<T extends Addressed> {
  /** By exactness, then by name. */
  readonly #levels: Map<string, T[]>[] = [new Map(), new Map(), new Map(), new Map()];

  constructor(tunnels: Iterable<T>) {
    for (const tunnel of tunnels) {
      for (const [level, name] of namesOf(tunnel.url).entries()) {
        const found = this.#levels[level]?.get(name);
        if (found) found.push(tunnel);
        else this.#levels[level]?.set(name, [tunnel]);
      }
    }
  }

  /**
   * @param part first label, host, `host:port` or whole URL, in any case
   * @throws {AgentError} 404 when no tunnel matches, 409 naming all of them when several do
   */
  find(part: string): T {
    const matches = this.#matches(part.toLowerCase().replace(/\/$/, ''));
    const [first, ...others] = matches;
    if (!first) throw new AgentError('ERR_AGENT_TUNNEL_NOT_FOUND', `no such tunnel: ${part}`);
    if (others.length === 0) return first;
    const urls = matches.map(({ url }) => url);
    // Two tunnels share a URL only when a file was edited by hand. The later one is the copy.
    if (new Set(urls).size === 1) return others.at(-1) ?? first;
    throw new AgentError(
      'ERR_AGENT_AMBIGUOUS',
      `ambiguous tunnel: ${part} matches ${urls.join(' and ')}; give more of the URL`,
      {
        details: Object.fromEntries(urls.map((url, at) => [`match ${at + 1}`, url])),
      },
    );
  }

  /** The shortest part that finds only this tunnel now. */
  shortestFor(tunnel: T): string {
    const names = namesOf(tunnel.url).toReversed();
    const unique = names.find((name) => {
      const matches = this.#matches(name);
      return matches.length === 1 && matches[0] === tunnel;
    });
    return unique ?? tunnel.url;
  }

  #matches(name: string): readonly T[] {
    for (const level of this.#levels) {
      const found = level.get(name);
      if (found) return found;
    }
    return [];
  }
}
