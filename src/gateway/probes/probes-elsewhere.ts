import type { Nodes } from '../cluster/nodes.ts';
import type { Relays } from '../edge/relays/relays.ts';
import { PROBE_STAGES, type ProbeOutcome } from '../endpoints/probe-outcome.ts';

/** What a probe has found, and when. */
export interface ProbeResult extends ProbeOutcome {
  /** In milliseconds since 1970. */
  readonly at: number;
  /** Since when the stage is what it is. */
  readonly since: number;
}

/** A result as gateways tell each other: their clocks may differ, so they say how many milliseconds ago it was. */
type Told = readonly [url: string, stage: string | null, message: string | null, ago: number, sinceAgo: number];

/** So much longer ago than the last answer: results may have come while that was on its way. */
const OVERLAP_MS = 5_000;

/** @param details how many milliseconds ago the oldest of them may be */
export function probesText(found: Iterable<{ url: string; result: ProbeResult }>, details: string): string {
  const now = Date.now();
  const told = [...found]
    .filter(({ result }) => now - result.at <= Number(details))
    .map(({ url, result: { stage, message, at, since } }): Told => [url, stage, message, now - at, now - since]);
  return JSON.stringify(told);
}

/** What the probes of other gateways have found. It outlives those gateways, until a later probe of another one. */
export class ProbesElsewhere {
  readonly #latest = new Map<string, ProbeResult>();
  /** When a gateway was asked that has answered, by the monotonic clock. */
  readonly #heardAt = new Map<string, number>();
  readonly #asking = new Set<string>();

  constructor(
    private readonly nodes: Pick<Nodes, 'all' | 'self' | 'place'>,
    private readonly relays: Pick<Relays, 'ask'>,
  ) {}

  /** What the last probe of another gateway has found; null: nothing is known. */
  at(url: string): ProbeResult | null {
    return this.#latest.get(url) ?? null;
  }

  /** Begins to ask the others for what they have found lately, and forgets endpoints that are not online. */
  learn(online: { has(url: string): boolean }): void {
    for (const url of this.#latest.keys()) if (!online.has(url)) this.#latest.delete(url);
    const { all, self } = this.nodes;
    const build = all.find(({ id }) => id === self)?.build;
    for (const { id, build: theirs } of all) {
      // Earlier versions do not answer that. One that hangs keeps no other one waiting.
      if (id !== self && theirs === build && !this.#asking.has(id)) void this.#ask(id);
    }
  }

  async #ask(id: string): Promise<void> {
    const place = this.nodes.place(id);
    if (place === undefined) return;
    this.#asking.add(id);
    const now = performance.now();
    const heardAt = this.#heardAt.get(id);
    try {
      const age = heardAt === undefined ? Number.MAX_SAFE_INTEGER : Math.ceil(now - heardAt) + OVERLAP_MS;
      this.#take(JSON.parse(await this.relays.ask(place, 'probes', String(age))) as Told[]);
      this.#heardAt.set(id, now);
    } catch {
      // Why it does not answer is logged where it is asked.
    } finally {
      this.#asking.delete(id);
    }
  }

  #take(told: readonly Told[]): void {
    const now = Date.now();
    for (const [url, name, message, ago, sinceAgo] of told) {
      const at = now - ago;
      const known = this.#latest.get(url);
      if (known !== undefined && known.at >= at) continue;
      const stage = PROBE_STAGES.find((each) => each === name) ?? null;
      const isSame = known !== undefined && known.stage === stage;
      this.#latest.set(url, { stage, message, at, since: isSame ? known.since : now - sinceAgo });
    }
  }
}
