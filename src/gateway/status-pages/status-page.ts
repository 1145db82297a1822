import type { Clock } from '../../lib/time/clock.ts';
import { credentials } from '../../management/resources/credential.ts';
import type { PolicyPorts, StatusFile, StatusPageContent } from '../../traffic-policy/ports.ts';
import { type AddressSettings, urlOf } from '../endpoints/endpoint-address.ts';
import type { LiveView } from '../endpoints/live-view.ts';
import type { EndpointProtocol } from '../endpoints/online-endpoint.ts';
import type { TrafficHistory } from '../history/traffic-history.ts';
import type { DaysOf } from './endpoint-states.ts';

/** How old a page may be; the next reader has it renewed. */
const FRESH_MS = 30_000;
/** A reader waits for another one, rather than reading such an old one. */
const STALE_MS = 5 * 60_000;
/** Three months change more slowly. */
const DAYS_FRESH_MS = 5 * 60_000;

/** What status pages are made of. */
export interface StatusSources {
  readonly live: Pick<LiveView, 'find' | 'askElsewhere'>;
  /** Null: the gateway keeps none. */
  readonly history: Pick<TrafficHistory, 'read'> | null;
  /** As in {@link statesOf}. */
  readonly isUnreached?: (url: string) => boolean;
  /** Where the gateway's endpoints are, unless a URL says otherwise. */
  readonly ports: AddressSettings['ports'];
  /** When agents could connect first, in milliseconds of the clock. */
  readonly since: number;
}

/**
 * Makes the status pages of policies: not those of agents, which would learn of endpoints of others.
 *
 * @param sources null: the gateway has just started
 * @param time milliseconds since 1970
 */
export function statusPages(
  clock: Clock,
  sources: () => StatusSources | null,
  time: () => number = Date.now,
): (payer: string) => PolicyPorts['statusPage'] {
  return (payer) => {
    if (payer.startsWith(credentials.idPrefix)) return null;
    return (content) => {
      const page = new StatusPage(content, clock, { sources, time });
      return () => page.current();
    };
  };
}

/** One page, which is made once for all readers. */
class StatusPage {
  #file: StatusFile | null = null;
  #making: Promise<StatusFile> | null = null;
  #madeAt = Number.NEGATIVE_INFINITY;
  #days: DaysOf = new Map();
  #daysAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly content: StatusPageContent,
    private readonly clock: Clock,
    private readonly own: { sources: () => StatusSources | null; time: () => number },
  ) {}

  current(): StatusFile | Promise<StatusFile> {
    const age = this.clock.now() - this.#madeAt;
    if (this.#file === null || age >= STALE_MS) return this.#make();
    // A reader who waits for it gets its error.
    if (age >= FRESH_MS) this.#make().catch(() => {});
    return this.#file;
  }

  #make(): Promise<StatusFile> {
    this.#making ??= this.#made().finally(() => {
      this.#making = null;
    });
    return this.#making;
  }

  async #made(): Promise<StatusFile> {
    // Most gateways have no such page.
    const { daysOf, statesOf } = await import('./endpoint-states.ts');
    const { statusFile } = await import('./status-view.ts');
    const { content, clock } = this;
    const [sources, now] = [this.own.sources(), this.own.time()];
    const urls = content.endpoints.map(({ url }) => (sources ? atItsPort(url, sources.ports) : url));
    if (sources !== null && clock.now() - this.#daysAt >= DAYS_FRESH_MS) {
      this.#days = await daysOf(urls, sources, now);
      this.#daysAt = clock.now();
    }
    const states = await statesOf(urls, this.#days, sources, { now, upMs: clock.now() - (sources?.since ?? 0) });
    const days = urls.map((url) => this.#days.get(url) ?? []);
    this.#file = await statusFile(content, { states, days, now });
    this.#madeAt = clock.now();
    return this.#file;
  }
}

/** The URL as the gateway shows it: with the port, where that is not the scheme's own. */
function atItsPort(url: string, ports: AddressSettings['ports']): string {
  const [, protocol = '', host = ''] = /^(https?|tls):\/\/([^:]+)$/.exec(url) ?? [];
  if (host === '') return url;
  return urlOf({ protocol: protocol as EndpointProtocol, host, port: protocol === 'http' ? ports.http : ports.https });
}
