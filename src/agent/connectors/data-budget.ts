import type { Socket } from 'node:net';
import { z } from 'zod';
import { type BudgetPlan, periodOf } from '../../lib/budget-plan.ts';
import { hasErrno, messageOf } from '../../lib/errors.ts';
import { nodeFiles, writeDurably } from '../../lib/files/durable-write.ts';
import type { Log } from '../../lib/log/log.ts';
import { TcpLosses, WireEstimate } from './wire-estimate.ts';

/** Shares of the budget: people are warned; tunnels pause, and the rest is spread over the period. */
const WARNED = 0.8;
const PAUSED = 0.95;
/** Bytes that the end of all connections may cost. */
const LAST_BYTES = 8_192;
/** The file is written for so many shares of the budget at a time, before they are used: it is never behind. */
const SHARES = 200;
/** A device that is offline for its budget comes back when it may use so much: a reconnect, and an hour of presence. */
const PRESENCE_BYTES = 20_480;
/** Tunnels whose share is counted, and shown. */
const MAX_TUNNELS = 200;
const SHOWN_TUNNELS = 20;
/** Packets without data that open and close a connection, and the look-up of a name. */
const OPEN_BYTES = 3 * 60 + 250;
const CLOSE_BYTES = 4 * 72;
/** Followers are notified of each twentieth of the budget. */
const STEPS = 20;
/** Between two looks at the packets that were lost, while something passes. */
const LOSSES_MS = 2_000;
/** A clock that is not set shows a time before this. */
const EARLIEST = Date.parse('2025-01-01T00:00:00Z');
/** The longest rest of a period that the gateway accepts, in seconds. */
const LONGEST_S = 32 * 86_400;

type BudgetLevel = 'normal' | 'warned' | 'paused' | 'spent';

/** What is known of the budget, for people. */
export interface BudgetState {
  level: BudgetLevel;
  usedBytes: number;
  limitBytes: number;
  /** Twentieths of the budget that are used. */
  step: number;
  since: Date;
  until: Date;
  /** Seconds until then. */
  restS: number;
  /** When the device may go online again; null while it may be. */
  nextAt: Date | null;
  /** Bytes of each tunnel, by its URL, the largest first; only the first ones. */
  tunnels: readonly (readonly [url: string, bytes: number])[];
}

/** `spare`: what may have passed while that was written; 0 after an orderly stop. */
const Saved = z.object({
  ...{ since: z.iso.datetime(), counted: z.number().nonnegative(), spare: z.number().nonnegative() },
  tunnels: z.record(z.string(), z.number().nonnegative()).default({}),
});

/**
 * Counts what the device sends and receives on its way to the gateway, and says what it may. Payload is counted exactly;
 * headers, acknowledgements and lost packets, which programs cannot see, are estimated. What the file says is never less than what
 * was counted, whenever the process ends.
 */
export class DataBudget {
  #since: number;
  #until: number;
  #used = 0;
  /** What the file says. */
  #saved = 0;
  #writing: Promise<void> | null = null;
  /** Bytes that were counted during the last write. */
  #passedMeanwhile = 0;
  #level: BudgetLevel = 'normal';
  #step = 0;
  /** Bytes of each tunnel. */
  #tunnels = new Map<string, number>();
  /** Bytes of tunnels that their connections have not been seen to carry yet. */
  readonly #carried = new Map<string, number>();
  readonly #losses = new TcpLosses();
  #lossTimer: NodeJS.Timeout | undefined;
  /** Whether the file was read; before, nothing is written over it. */
  #isOpen = false;
  readonly #meters = new Set<WireEstimate>();
  readonly #listeners = new Set<() => void>();

  constructor(
    readonly plan: BudgetPlan,
    private readonly own: {
      file: string;
      log: Log;
      now?: () => number;
      read?: typeof nodeFiles.read;
      write?: typeof writeDurably;
    },
  ) {
    const { start, end } = periodOf(plan, this.now);
    this.#since = start;
    this.#until = end;
  }

  /** Reads what was counted. A file that is damaged counts as a period that has just begun. */
  async open(): Promise<this> {
    const { file, log, read = nodeFiles.read } = this.own;
    const saved = await read(file)
      .then((text) => Saved.parse(JSON.parse(text)))
      .catch((error: unknown) => {
        if (!hasErrno(error, 'ENOENT')) log.warn({ file, reason: messageOf(error) }, 'data budget unreadable');
        return null;
      });
    if (saved !== null && Date.parse(saved.since) >= this.#since) {
      // Of a later period: the clock is behind.
      this.#since = Date.parse(saved.since);
      this.#until = periodOf(this.plan, this.#since).end;
      this.#used = Math.min(this.plan.bytes, saved.counted + saved.spare);
      this.#saved = this.#used;
      this.#tunnels = new Map(Object.entries(saved.tunnels).slice(0, MAX_TUNNELS));
    }
    this.#isOpen = true;
    this.#look();
    await this.#save();
    await this.#losses.look();
    return this;
  }

  get state(): BudgetState {
    this.sample();
    return {
      level: this.#level,
      usedBytes: this.#used,
      limitBytes: this.plan.bytes,
      step: this.#usedSteps,
      since: new Date(this.#since),
      until: new Date(this.#until),
      restS: Math.min(LONGEST_S, Math.max(1, Math.ceil((this.#until - this.now) / 1000))),
      nextAt: this.mayConnect ? null : new Date(this.#nextAt),
      tunnels: [...this.#tunnels].sort(([, one], [, other]) => other - one).slice(0, SHOWN_TUNNELS),
    };
  }

  /** Whether a session may begin. */
  get mayConnect(): boolean {
    this.#look();
    // The clock is behind. Its gateway can prove the time, in a session only.
    if (this.now < this.#since) return true;
    return this.#level === 'normal' || this.#level === 'warned' || this.#used + this.#presence <= this.#line;
  }

  /** Whether tunnels may use no more of it. */
  get isPaused(): boolean {
    return this.#level === 'paused' || this.#level === 'spent';
  }

  /** Why there is no session. */
  get problem(): string {
    const nextAt = new Date(this.#nextAt).toISOString().slice(0, 16).replace('T', ' ');
    return `data budget of ${this.plan.bytes / 1e6} MB a ${this.plan.period} used up: online again at ${nextAt} UTC`;
  }

  /** @returns ends it */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Counts an attempt to connect, which may fail. */
  dialled(): void {
    this.#count(OPEN_BYTES);
    this.#look();
  }

  /** Counts what passes on a connection. */
  meter(socket: Socket): void {
    const meter = new WireEstimate(socket);
    this.#meters.add(meter);
    socket.once('close', () => {
      this.#sampleAll();
      this.#meters.delete(meter);
      this.#count(meter.unacknowledged() + CLOSE_BYTES);
    });
  }

  /** Notes bytes of a tunnel: it gets its share of what is counted from now on. */
  carry(url: string, bytes: number): void {
    if (!this.#carried.has(url) && this.#carried.size >= MAX_TUNNELS) return;
    this.#carried.set(url, (this.#carried.get(url) ?? 0) + bytes);
  }

  /** To be called when something has passed. */
  sample(): void {
    this.#sampleAll();
    this.#look();
  }

  #sampleAll(): void {
    let [payload, wire] = [0, 0];
    for (const meter of this.#meters) {
      const passed = meter.sample();
      payload += passed.payload;
      wire += passed.wire;
    }
    if (payload === 0) return;
    this.#count(wire);
    this.#allot(payload, wire);
    this.#lossTimer ??= setTimeout(() => void this.#countLosses(), LOSSES_MS).unref();
  }

  /** Gives tunnels their share of what has passed, headers included. Heartbeats and the like are nobody's. */
  #allot(payload: number, wire: number): void {
    let all = 0;
    for (const bytes of this.#carried.values()) all += bytes;
    if (all === 0) return;
    const seen = Math.min(1, payload / all);
    for (const [url, bytes] of this.#carried) {
      const isKnown = this.#tunnels.has(url) || this.#tunnels.size < MAX_TUNNELS;
      if (isKnown) this.#tunnels.set(url, (this.#tunnels.get(url) ?? 0) + (bytes * seen * wire) / payload);
      if (seen === 1) this.#carried.delete(url);
      else this.#carried.set(url, bytes * (1 - seen));
    }
  }

  async #countLosses(): Promise<void> {
    const lost = await this.#losses.look();
    this.#lossTimer = undefined;
    for (const meter of this.#meters) this.#count(meter.lost(lost));
    this.#look();
  }

  /** Writes what was counted exactly, rather than what was set aside. */
  async close(): Promise<void> {
    if (!this.#isOpen) return;
    clearTimeout(this.#lossTimer);
    this.#sampleAll();
    await this.#writing;
    await this.#write(this.#used, 0);
  }

  /** Milliseconds since 1970. */
  get now(): number {
    return (this.own.now ?? Date.now)();
  }

  /** More on a slow disk: three times what has passed while it wrote. */
  get #share(): number {
    return Math.max(this.plan.bytes / SHARES, 3 * this.#passedMeanwhile);
  }

  get #presence(): number {
    return Math.min(PRESENCE_BYTES, ((1 - PAUSED) * this.plan.bytes) / 2);
  }

  /** What may be used up to now once tunnels pause: the rest of the budget, evenly until the period ends. */
  get #line(): number {
    const passed = Math.min(1, Math.max(0, (this.now - this.#since) / (this.#until - this.#since)));
    const rest = (1 - PAUSED) * this.plan.bytes - LAST_BYTES;
    return PAUSED * this.plan.bytes + Math.max(0, rest) * passed;
  }

  get #nextAt(): number {
    const rest = (1 - PAUSED) * this.plan.bytes - LAST_BYTES;
    const passed = (this.#used + this.#presence - PAUSED * this.plan.bytes) / rest;
    return passed >= 1 || rest <= 0 ? this.#until : this.#since + passed * (this.#until - this.#since);
  }

  #count(bytes: number): void {
    this.#used += bytes;
    if (this.#used > this.#saved - this.#share / 2 && this.#saved < this.plan.bytes) void this.#save();
  }

  get #usedSteps(): number {
    return Math.floor((STEPS * this.#used) / this.plan.bytes);
  }

  #look(): void {
    const now = this.now;
    if (now >= this.#until) this.#begin(now);
    else if (now < this.#since && now >= EARLIEST) this.#correct(now);
    const { bytes } = this.plan;
    const isPaused = this.#used >= PAUSED * bytes - LAST_BYTES;
    const isSpent = isPaused && this.#used >= this.#line;
    const level = isSpent ? 'spent' : isPaused ? 'paused' : this.#used >= WARNED * bytes ? 'warned' : 'normal';
    const step = this.#usedSteps;
    const isNewStep = step !== this.#step;
    this.#step = step;
    if (level === this.#level) {
      if (isNewStep) this.#tell();
      return;
    }
    this.#level = level;
    const facts = { budget: level, used_bytes: Math.round(this.#used), limit_bytes: bytes };
    if (level === 'normal') this.own.log.info(facts, 'data budget level changed');
    else this.own.log.warn(facts, 'data budget level changed');
    this.#tell();
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }

  /** The clock was ahead: what was used counts for the period that it is now. */
  #correct(now: number): void {
    const { start, end } = periodOf(this.plan, now);
    this.#since = start;
    this.#until = end;
    void this.#save();
  }

  #begin(now: number): void {
    const { start, end } = periodOf(this.plan, now);
    this.#since = start;
    this.#until = end;
    this.#used = 0;
    this.#saved = 0;
    this.#tunnels.clear();
    void this.#save();
  }

  /** Sets the next share aside, on the disk. One write at a time. */
  #save(): Promise<void> {
    this.#writing ??= this.#write(Math.min(this.#used + this.#share, this.plan.bytes), this.#share).finally(() => {
      this.#writing = null;
    });
    return this.#writing;
  }

  async #write(counted: number, spare: number): Promise<void> {
    const { file, log, write = writeDurably } = this.own;
    this.#saved = counted;
    const since = new Date(this.#since).toISOString();
    const tunnels = Object.fromEntries([...this.#tunnels].map(([url, bytes]) => [url, Math.round(bytes)]));
    const text = `${JSON.stringify({ since, counted: Math.ceil(counted), spare: Math.ceil(spare), tunnels })}\n`;
    const before = this.#used;
    try {
      await write(file, text, 0o600);
      this.#passedMeanwhile = Math.max(0, this.#used - before);
    } catch (error) {
      log.error({ file, reason: messageOf(error) }, 'data budget not saved');
    }
  }
}
