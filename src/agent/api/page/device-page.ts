import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import type { Router } from 'express';
import type { BrowserSessions } from '../../../lib/http/browser-sessions.ts';
import { OneTimeCodes } from '../../../lib/http/one-time-code.ts';
import { staticSite } from '../../../lib/http/static-site.ts';
import type { LogTail } from '../../../lib/log/log-tail.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { ACCESS_CHOICES, isSupported } from '../../../traffic-policy/access.ts';
import { AgentError } from '../../errors/agent-error.ts';
import type { Site } from '../../tunnels/site-names.ts';
import type { UpstreamChecks } from '../../upstreams/upstream-monitor.ts';
import { serve } from '../agent-routes.ts';
import type { HealthSource } from '../status-report.ts';
import { LiveFeed } from './live-feed.ts';
import { PAGE_ROUTES, type PageFinding, type PageSuggestions } from './page-routes.ts';

/** The device's page: what the local and the remote app share of it. */
export class DevicePage {
  readonly codes = new OneTimeCodes();
  readonly #feed: LiveFeed;
  #diagnosis: Promise<PageFinding[]> | null = null;

  constructor(
    private readonly options: {
      sessions: BrowserSessions;
      health: Omit<HealthSource, 'metrics'> & { monitor: UpstreamChecks };
      folder: string;
      logTail: LogTail | null;
      /** Runs the checks of `device-agent doctor`; null where they are not supported. */
      diagnose: (() => Promise<PageFinding[]>) | null;
      canForwardTo: (port: number) => boolean;
      site: Site | null;
      /** Data on the way to the gateway is expensive. */
      isMetered?: () => boolean;
      clock: Clock;
    },
  ) {
    const { health, logTail, clock, site, isMetered } = options;
    this.#feed = new LiveFeed({ ...health, logTail, isMetered, clock, name: site?.deviceName ?? hostname() });
  }

  get sessions(): BrowserSessions {
    return this.options.sessions;
  }

  /** The page and its files, which contain no data. */
  site(): Router {
    return staticSite(this.options.folder, 'device');
  }

  /** What only the page asks for; serve it behind the guards of the API. */
  data(): Router {
    return serve(PAGE_ROUTES, {
      events: ({ res }) => this.#feed.open(res),
      suggestions: () => this.#suggestions(),
      doctor: async () => ({ findings: await this.#diagnose() }),
      policy: async ({ body }) => {
        // Loaded on demand: only people who write policies need it.
        const { readPolicyText } = await import('./read-policy-text.ts');
        return readPolicyText(body);
      },
    });
  }

  stop(): void {
    this.#feed.stop();
  }

  async #suggestions(): Promise<PageSuggestions> {
    const { canForwardTo, site } = this.options;
    const ports = (await listeningPorts()).filter(canForwardTo);
    const access = ACCESS_CHOICES.filter(isSupported);
    return { ports, ending: site && `.${site.domain}`, hasOwnSite: site?.deviceName === null, access };
  }

  /** One at a time: all pages that ask meanwhile get the same result. */
  #diagnose(): Promise<PageFinding[]> {
    const { diagnose } = this.options;
    if (diagnose === null) throw new AgentError('ERR_AGENT_NO_SUCH_PATH', 'diagnosis not supported here');
    this.#diagnosis ??= diagnose().finally(() => {
      this.#diagnosis = null;
    });
    return this.#diagnosis;
  }
}

/** The kernel's tables of TCP sockets, and the number of the state LISTEN in them. */
const TABLES = ['/proc/net/tcp', '/proc/net/tcp6'];
const LISTEN = '0A';

/**
 * The TCP ports on which programs of this device listen, lowest first. Empty where the kernel does not tell, such as on
 * macOS.
 */
async function listeningPorts(): Promise<number[]> {
  const tables = await Promise.all(TABLES.map((table) => readFile(table, 'utf8').catch(() => '')));
  const ports = tables.flatMap((table) => table.split('\n').slice(1)).flatMap(portIn);
  return [...new Set(ports)].sort((a, b) => a - b);
}

/** A row has the local address as `<hex address>:<hex port>` in its second column, and the state in its fourth. */
function portIn(row: string): number[] {
  const [, local = '', , state] = row.trim().split(/\s+/);
  return state === LISTEN ? [Number.parseInt(local.split(':')[1] ?? '', 16)] : [];
}
