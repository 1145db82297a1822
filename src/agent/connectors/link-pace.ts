import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { messageOf } from '../../lib/errors.ts';
import { writeDurably } from '../../lib/files/durable-write.ts';
import type { Log } from '../../lib/log/log.ts';
import type { Clock } from '../../lib/time/clock.ts';

/** Silence is counted in ticks, so that a process that was suspended does not blame the gateway for the gap. */
export const TICK_MS = 1900;
/** Between heartbeats at first, and while clients wait for something. */
export const BUSY_TICKS = 2;
/** Between heartbeats of an idle link: what a silent loss costs, and what a day of them costs, with a margin for both. */
const MOST_TICKS = { default: 10, metered: 31 };
/** So long after bytes for a client, more are expected. */
const MORE_MS = { default: 10_000, metered: 5_000 };
/** A loss that a new session follows so soon was not one of the whole network: something on the way has forgotten the link. */
const SOON_MS = 20_000;
/** After so long without such a loss, longer pauses are tried again. */
const RETRY_MS = 24 * 3_600_000;

export type LinkKind = keyof typeof MOST_TICKS;

const Learnt = z.object({
  heartbeat_s: z.number().positive().catch(Number.POSITIVE_INFINITY),
  /** The last word of the gateway on the link; null: it left that to the device. */
  metered: z.boolean().nullable().catch(null),
});

/**
 * How far apart the heartbeats of this device's links may be. NATs forget idle connections after a time that they do not tell,
 * so it is learnt from silent losses, and kept over restarts.
 */
export class LinkPace {
  #kind: LinkKind;
  /** Called when it changes. */
  onKind: (() => void) | null = null;
  #ticks: number;
  #changedAt: number;
  /** Ticks between heartbeats of a link that was lost silently, and when that was noticed. */
  #lost: { ticks: number; at: number } | null = null;

  /** @param keep gets each change: a handful a day at most */
  constructor(
    /** The device's own setting. */
    readonly own: LinkKind,
    private readonly clock: Clock,
    learntTicks = Number.POSITIVE_INFINITY,
    private readonly keep: (learnt: { ticks: number; metered: boolean | null }) => void = () => {},
    private metered: boolean | null = null,
    /** Whether the gateway has no say: the link has a data budget. */
    private readonly isFixed = false,
  ) {
    this.#kind = kindOf(metered) ?? own;
    this.#ticks = Math.max(BUSY_TICKS, Math.min(learntTicks, MOST_TICKS[this.#kind]));
    this.#changedAt = clock.now();
  }

  get kind(): LinkKind {
    return this.#kind;
  }

  get moreMs(): number {
    return MORE_MS[this.#kind];
  }

  /** The gateway says whether the link is metered; null: it leaves that to the device. */
  follow(metered: boolean | null): void {
    if (this.isFixed || metered === this.metered) return;
    const before = this.#kind;
    this.metered = metered;
    this.#choose();
    this.keep({ ticks: this.#ticks, metered });
    if (this.#kind !== before) this.onKind?.();
  }

  /** The most ticks between heartbeats of an idle link. */
  get most(): number {
    const now = this.clock.now();
    if (this.#ticks < MOST_TICKS[this.kind] && now - this.#changedAt >= RETRY_MS) this.#change(this.#ticks * 2);
    return this.#ticks;
  }

  /** A link has fallen silent whose heartbeats were so many ticks apart. */
  lost(ticks: number): void {
    this.#lost = ticks > BUSY_TICKS ? { ticks, at: this.clock.now() } : null;
  }

  /** A session has begun. */
  joined(): void {
    const lost = this.#lost;
    this.#lost = null;
    if (lost === null || this.clock.now() - lost.at > SOON_MS) return;
    this.#change(Math.floor(Math.min(lost.ticks, this.#ticks) / 2));
  }

  #choose(): void {
    const before = MOST_TICKS[this.#kind];
    this.#kind = kindOf(this.metered) ?? this.own;
    const most = MOST_TICKS[this.#kind];
    // Pauses that were as long as they get have shown no limit.
    this.#ticks = this.#ticks === before ? most : Math.min(this.#ticks, most);
  }

  #change(ticks: number): void {
    const next = Math.max(BUSY_TICKS, Math.min(ticks, MOST_TICKS[this.kind]));
    this.#changedAt = this.clock.now();
    if (next === this.#ticks) return;
    this.#ticks = next;
    this.keep({ ticks: next, metered: this.metered });
  }
}

function kindOf(metered: boolean | null): LinkKind | null {
  return metered === null ? null : metered ? 'metered' : 'default';
}

/**
 * Reads what was learnt, and keeps what will be. A file that is missing or damaged is nothing learnt.
 *
 * @param isFixed see {@link LinkPace}
 */
export async function openLinkPace(
  { kind, isFixed }: { kind: LinkKind; isFixed: boolean },
  file: string,
  { clock, log }: { clock: Clock; log: Log },
): Promise<LinkPace> {
  let writing: Promise<unknown> = Promise.resolve();
  const keep: ConstructorParameters<typeof LinkPace>[3] = ({ ticks, metered }) => {
    const heartbeat_s = (ticks * TICK_MS) / 1000;
    const text = `${JSON.stringify({ heartbeat_s, metered })}\n`;
    log.info({ heartbeat_s, link: pace.kind }, 'time between heartbeats changed');
    writing = writing
      .then(() => writeDurably(file, text, 0o600))
      .catch((error: unknown) => log.debug({ reason: messageOf(error) }, 'time between heartbeats not saved'));
  };
  const learnt = await readFile(file, 'utf8')
    .then((text) => Learnt.parse(JSON.parse(text)))
    .catch(() => ({ heartbeat_s: Number.POSITIVE_INFINITY, metered: null }));
  const ticks = Math.round((learnt.heartbeat_s * 1000) / TICK_MS);
  const pace = new LinkPace(kind, clock, ticks, keep, isFixed ? null : learnt.metered, isFixed);
  return pace;
}
