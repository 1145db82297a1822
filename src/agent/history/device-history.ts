import { appendFile, readFile, rename, writeFile } from 'node:fs/promises';
import { z } from 'zod';
import { SLOT_SECONDS, type SlotAway, type TimesAway } from '../../agent-protocol/messages.ts';
import { hasErrno, messageOf } from '../../lib/errors.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import type { AgentContext } from '../context/agent-context.ts';
import type { TunnelState } from '../tunnels/tunnel.ts';
import type { Traffic } from '../upstreams/traffic-counters.ts';
import { machineState } from './machine-state.ts';

const MINUTE_MS = 60_000;
/** The file gets a line for each slot, and no more than this: SD cards wear out. */
const KEPT_SLOTS = 144;
/** An agent that stops earlier writes nothing. */
const MIN_SECONDS = 60;
/** What the file gets in the time that is kept, in bytes; beyond it, slots are in memory only. */
const MAX_WRITTEN = 200_000;
const MODE = 0o600;
/** Shorter times without a session are no news for the gateway. */
const MIN_AWAY_SECONDS = 10;
/** After a session has begun: a thousand devices that come back at once do not report at once. */
const REPORT_MS = { least: 1_000, more: 10_000 };

const count = z.int().nonnegative();
const TunnelSlot = z.tuple([
  count.describe('seconds online'),
  count.describe('requests'),
  count.describe('bytes in'),
  count.describe('bytes out'),
]);
type TunnelSlot = z.output<typeof TunnelSlot>;

const reading = z.number().nullable();
/** What has happened in ten minutes. */
const Slot = z.object({
  /** When it began, in whole seconds since 1970, and for how many of them the agent ran. */
  at: count,
  ran: count,
  /** Seconds with a session, and how often one came. */
  online: count,
  sessions: count,
  /** By id; left out: online all the time, without traffic. */
  tunnels: z.record(z.string(), TunnelSlot),
  /** The slots that began before this are known to the gateway. */
  told: count.optional(),
  ...{ temperature: reading, freeMemory: reading, freeDisk: reading, signal: reading },
});
export type Slot = z.output<typeof Slot>;

/** What is counted of a tunnel. */
export interface CountedTunnel {
  readonly id: string;
  readonly state: TunnelState;
  readonly traffic: Traffic | null;
}

interface Counted {
  requests: number;
  bytesIn: number;
  bytesOut: number;
}

/**
 * What has happened on this device in the last day, in slots of ten minutes, also while no gateway could be reached. It looks once
 * a minute; a power cut loses ten.
 */
export class DeviceHistory {
  #slots: Slot[] = [];
  #current: Slot;
  #before: ReadonlyMap<string, Counted> = new Map();
  #lookedAt: number;
  #wasOnline = false;
  #cancel: (() => void) | null = null;
  #writing: Promise<void> = Promise.resolve();
  readonly #failures = new Repeats();
  /** Seconds without a session that the gateway has received, by the beginning of their slots. */
  #told = new Map<number, number>();
  #cancelReport: (() => void) | null = null;

  constructor(
    private readonly context: Pick<AgentContext, 'clock' | 'log'>,
    private readonly own: {
      readonly file: string;
      readonly dataDir: string;
      readonly isOnline: () => boolean;
      readonly tunnels: () => readonly CountedTunnel[];
      /** @returns false: no gateway takes reports now @throws its refusal */
      readonly reportAway?: (times: TimesAway) => Promise<boolean>;
      /** Milliseconds since 1970; left out: the system's clock. */
      readonly time?: () => number;
    },
  ) {
    this.#lookedAt = context.clock.now();
    this.#current = emptySlot(this.#seconds);
  }

  async start(): Promise<void> {
    this.#slots = await this.#read();
    const told = Math.max(0, ...this.#slots.map((slot) => slot.told ?? 0));
    for (const slot of this.#slots) if (slot.at < told) this.#told.set(slot.at, awayIn(slot));
    this.#next();
  }

  /** Writes what it has, unless that is nearly nothing: a start that fails changes nothing. */
  async stop(): Promise<void> {
    this.#cancel?.();
    this.#cancelReport?.();
    this.#look();
    if (this.#current.ran >= MIN_SECONDS) this.#end();
    await this.#writing;
  }

  /** A session has come, or the last one has gone: so that what was before counts to the second. */
  sessionChanged(isOnline: boolean): void {
    this.#look(!isOnline);
    this.#cancelReport?.();
    if (isOnline) this.#reportSoon();
  }

  /** The slots of the last day, the oldest first, with the one that runs. */
  get slots(): readonly Slot[] {
    this.#look();
    const oldest = this.#seconds - KEPT_SLOTS * SLOT_SECONDS;
    return [...this.#slots, this.#current].filter(({ at }) => at >= oldest);
  }

  #next(): void {
    this.#cancel = this.context.clock.after(MINUTE_MS, () => {
      this.#look();
      const at = slotAt(this.#seconds);
      if (at !== this.#current.at) {
        this.#end();
        // What a gateway has not taken, it may take now.
        if (this.own.isOnline()) this.#reportSoon();
      }
      this.#next();
    });
  }

  #reportSoon(): void {
    const { least, more } = REPORT_MS;
    this.#cancelReport?.();
    this.#cancelReport = this.context.clock.after(
      least + this.context.clock.random() * more,
      () => void this.#report(),
    );
  }

  /** Completes the history of the gateway. */
  async #report(): Promise<void> {
    // What the machine says is there once its slot is written.
    await this.#writing;
    const reported = this.#current;
    const news = this.slots.filter((slot) => {
      const away = awayIn(slot);
      return away >= MIN_AWAY_SECONDS && away > (this.#told.get(slot.at) ?? 0);
    });
    if (news.length === 0) return;
    const present = await machineState(this.own.dataDir);
    const slots = news.map((slot): SlotAway => {
      const { at } = slot;
      // Of the slot that runs, nothing is known yet.
      const { temperature, freeMemory, freeDisk, signal } = slot === this.#current ? present : slot;
      return [at, awayIn(slot), temperature, freeMemory, freeDisk, signal];
    });
    try {
      if (!(await this.own.reportAway?.({ Now: this.#seconds, Slots: slots }))) return;
    } catch (error) {
      this.context.log.debug({ reason: messageOf(error) }, 'times away not reported');
      return;
    }
    for (const [at, away] of slots) this.#told.set(at, away);
    const oldest = this.#seconds - KEPT_SLOTS * SLOT_SECONDS;
    for (const at of this.#told.keys()) if (at < oldest) this.#told.delete(at);
    // A later start need not say it again.
    reported.told = reported.at;
  }

  #look(isOnline = this.own.isOnline()): void {
    const now = this.context.clock.now();
    // The rest of a second counts with the next look: pages may look more often.
    const seconds = Math.floor((now - this.#lookedAt) / 1000);
    this.#lookedAt += seconds * 1000;
    const slot = this.#current;
    slot.ran += seconds;
    if (isOnline) slot.online += seconds;
    // It may have come after what is counted here.
    const isNow = this.own.isOnline();
    if (isNow && !this.#wasOnline) slot.sessions += 1;
    this.#wasOnline = isNow;
    const counted = new Map<string, Counted>();
    for (const { id, state, traffic } of this.own.tunnels()) {
      const { requests = 0, bytesIn = 0, bytesOut = 0 } = traffic ?? {};
      const before = this.#before.get(id) ?? { requests: 0, bytesIn: 0, bytesOut: 0 };
      // A gateway that counts begins again with each session.
      const since = (value: number, earlier: number) => (value < earlier ? value : value - earlier);
      counted.set(id, { requests, bytesIn, bytesOut });
      const [online, ...counts] = slot.tunnels[id] ?? [slot.ran - seconds, 0, 0, 0];
      const more = [since(requests, before.requests), since(bytesIn, before.bytesIn), since(bytesOut, before.bytesOut)];
      const values = counts.map((value, at) => value + (more[at] ?? 0)) as [number, number, number];
      slot.tunnels[id] = [state === 'online' ? online + seconds : online, ...values];
      if (isQuiet(slot.tunnels[id], slot.ran)) delete slot.tunnels[id];
    }
    this.#before = counted;
  }

  #end(): void {
    const ended = this.#current;
    this.#current = emptySlot(this.#seconds);
    this.#slots = [...this.#slots.slice(1 - KEPT_SLOTS), ended];
    this.#write(async () => {
      Object.assign(ended, await machineState(this.own.dataDir));
      const written = this.#slots.reduce((sum, slot) => sum + JSON.stringify(slot).length + 1, 0);
      if (written <= MAX_WRITTEN) await appendFile(this.own.file, `${JSON.stringify(ended)}\n`, { mode: MODE });
    });
  }

  #write(write: () => Promise<void>): void {
    this.#writing = this.#writing.then(write).catch((error: unknown) => {
      const times = this.#failures.timesDue('write');
      if (times !== null)
        this.context.log.warn({ times, reason: messageOf(error) }, 'history of the device not written');
    });
  }

  /** Slots of the last day. The file is written again without older ones. */
  async #read(): Promise<Slot[]> {
    const { file } = this.own;
    let text: string;
    try {
      text = await readFile(file, 'utf8');
    } catch (error) {
      if (!hasErrno(error, 'ENOENT'))
        this.context.log.warn({ reason: messageOf(error) }, 'history of the device cannot be read');
      return [];
    }
    const lines = text.split('\n').filter((line) => line !== '');
    const slots = lines.flatMap(slotOf).slice(-KEPT_SLOTS);
    if (slots.length < lines.length || !text.endsWith('\n')) {
      this.#write(async () => {
        await writeFile(`${file}.tmp`, slots.map((slot) => `${JSON.stringify(slot)}\n`).join(''), { mode: MODE });
        await rename(`${file}.tmp`, file);
      });
    }
    return slots;
  }

  get #seconds(): number {
    return Math.floor((this.own.time ?? Date.now)() / 1000);
  }
}

/** What a tunnel has in a slot. */
export function ofTunnel({ tunnels, ran }: Slot, id: string): TunnelSlot {
  return tunnels[id] ?? [ran, 0, 0, 0];
}

/** Seconds of a slot without a session. */
function awayIn({ ran, online }: Slot): number {
  return Math.min(SLOT_SECONDS, ran - online);
}

function isQuiet([online, ...counts]: TunnelSlot, ran: number): boolean {
  return online === ran && counts.every((value) => value === 0);
}

function slotAt(seconds: number): number {
  return seconds - (seconds % SLOT_SECONDS);
}

function emptySlot(seconds: number): Slot {
  const none = { temperature: null, freeMemory: null, freeDisk: null, signal: null };
  return { at: slotAt(seconds), ran: 0, online: 0, sessions: 0, tunnels: {}, ...none };
}

/** A line that was not written to its end is left out. */
function slotOf(line: string): Slot[] {
  try {
    return [Slot.parse(JSON.parse(line))];
  } catch {
    return [];
  }
}
