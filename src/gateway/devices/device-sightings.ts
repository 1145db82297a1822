import type { BudgetReport } from '../../agent-protocol/messages.ts';
import { messageOf } from '../../lib/errors.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { SetsByKey } from '../../lib/sets-by-key.ts';
import { type Clock, systemClock } from '../../lib/time/clock.ts';
import { BUDGET_STATES, type ReportedBudget } from '../../management/resources/device.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { DeviceRow, Sighting } from '../store/devices.ts';
import { timestamp } from '../store/store.ts';

/** How often at most anything is written, because disks wear out: a killed gateway forgets so much. */
const WRITE_MS = 10_000;
/** The same for a device that says that it leaves: until then, it would be missed. */
const LEAVES_MS = 1_000;
/** As devices warn of it. */
const LOW_PERCENT = 80;

/** A session of an agent; a device can have several at a time. */
export interface DeviceSession {
  readonly credential: { readonly id: string };
  readonly agent: { readonly program: string };
  readonly address: string;
  /** Whether its agent has said that it has a data budget. */
  readonly hasBudget: boolean;
  /** The kind of its link, as its agent reports it; null: not reported. */
  readonly link: 'default' | 'metered' | null;
  /** For how long nothing was heard of it when it ended. */
  readonly silentMs: number;
}

interface DeviceSessions {
  /** Left out: agents learn nothing. */
  deviceChanged?(credentialId: string, device: DeviceRow): void;
  readonly sessions: Iterable<DeviceSession>;
  on(event: 'added' | 'removed', listener: (session: DeviceSession) => void): unknown;
  on(event: 'budget', listener: (session: DeviceSession, budget: BudgetReport) => void): unknown;
}

/**
 * Records when devices were last online, from where and with which version. A device is marked as online once; one row says
 * until when the gateway ran, which is when all of them were last seen after a crash. Without devices, nothing is written.
 */
export class DeviceSightings {
  readonly #devices = new Map<DeviceSession, string>();
  /** The last report of each session's link: other gateways write those of theirs. */
  readonly #links = new WeakMap<DeviceSession, DeviceSession['link']>();
  readonly #sessionsOf = new SetsByKey<DeviceSession>();
  /** What the database does not have yet, by device. */
  readonly #unwritten = new Map<string, Sighting>();
  readonly #failures = new Repeats();
  #sessions: DeviceSessions | null = null;
  #writtenAt = Number.NEGATIVE_INFINITY;
  #cancel: (() => void) | null = null;
  #isWriting = false;
  /** The pause after the write that is under way. */
  #nextPauseMs = WRITE_MS;
  #stopped = false;

  constructor(
    private readonly context: Pick<GatewayContext, 'store' | 'log' | 'activity'>,
    /** Whether an authtoken has a session at another gateway; null: there is no other one. */
    private readonly isElsewhere: ((credentialId: string) => boolean) | null = null,
    private readonly clock: Clock = systemClock,
  ) {}

  /** Records what a gateway that was killed could not, then watches the sessions. */
  async start(sessions: DeviceSessions): Promise<void> {
    const { database, devices } = this.context.store;
    this.#sessions = sessions;
    database.onRowApplied((table, id) => {
      if (table === 'devices') setImmediate(() => this.changed(id));
    });
    if (this.isElsewhere === null && devices.areLeftOnline())
      await this.#commit(() => database.write(() => devices.endSightings()));
    sessions.on('added', (session) => this.#came(session));
    sessions.on('removed', (session) => this.#went(session));
    sessions.on('budget', (session, budget) => this.#budgeted(session, budget));
    for (const session of sessions.sessions) this.#came(session);
  }

  /** Records that the devices that are online now were seen until now. */
  async stop(): Promise<void> {
    for (const session of [...this.#devices.keys()]) this.#went(session);
    this.#stopped = true;
    this.#cancel?.();
    if (this.#unwritten.size > 0) await this.#write();
  }

  /** An operator has changed the device, here or at another gateway: its agent learns what concerns it. */
  changed(id: string): void {
    const row = this.#stopped ? null : this.context.store.devices.get(id);
    if (row === null || row.credential_id === null) return;
    this.#sessions?.deviceChanged?.(row.credential_id, row);
    for (const session of this.#sessionsOf.get(id)) {
      const { link } = session;
      if (link === null || link === this.#links.get(session)) continue;
      this.#links.set(session, link);
      this.#note(id, { link });
    }
  }

  /** A device's row with what is not in the database yet. */
  latest(row: DeviceRow): DeviceRow {
    return { ...row, ...this.#unwritten.get(row.id) };
  }

  #came(session: DeviceSession): void {
    const device = this.context.store.devices.ofAuthtoken(session.credential.id);
    if (device === null) return;
    this.#devices.set(session, device.id);
    this.#links.set(session, session.link);
    this.#sessionsOf.add(device.id, session);
    const { data_budget } = this.latest(device);
    const back = data_budget?.back_at
      ? { data_budget: { ...data_budget, state: 'paused', back_at: null } as const }
      : {};
    this.#note(device.id, { ...this.#seen(session, true), ...(session.hasBudget ? back : { data_budget: null }) });
  }

  #budgeted(session: DeviceSession, report: BudgetReport): void {
    const id = this.#devices.get(session);
    const row = id === undefined ? null : this.context.store.devices.get(id);
    if (row === null) return;
    const { store, activity } = this.context;
    const { data_budget: before } = this.latest(row);
    const now = store.now();
    const after = budgetOf(report, Date.parse(now));
    this.#note(row.id, { data_budget: after });
    if (after.back_at !== null) this.#writeSoon(LEAVES_MS);
    const isNewPeriod = before?.ends_at != null && before.ends_at <= now;
    const known = before === null || isNewPeriod ? 0 : BUDGET_STATES.indexOf(before.state);
    const has = BUDGET_STATES.indexOf(after.state);
    const { used_percent, limit_bytes, ends_at } = after;
    const describe = () => ({
      ...{ device_id: row.id, name: row.name, site: row.site, used_percent, limit_bytes, ends_at },
      ...{ credential_id: session.credential.id },
    });
    if (known < 1 && has >= 1) activity.note('data_budget_low.v0', describe, session.credential.id);
    if (known < 2 && has >= 2) activity.note('data_budget_used_up.v0', describe, session.credential.id);
  }

  #went(session: DeviceSession): void {
    const id = this.#devices.get(session);
    if (id === undefined) return;
    this.#devices.delete(session);
    this.#sessionsOf.delete(id, session);
    if (this.#sessionsOf.has(id)) return;
    // Its authtoken of now: with one that was rotated, nothing stays online, and another gateway may have it again.
    const present = this.context.store.devices.get(id)?.credential_id;
    if (!present || !this.isElsewhere?.(present)) this.#note(id, this.#seen(session, false));
  }

  #seen({ agent, address, link, silentMs }: DeviceSession, online: boolean): Sighting {
    const last_seen_at = timestamp(Date.parse(this.context.store.now()) - silentMs);
    return { online, last_seen_at, last_ip: address, agent_version: agent.program, link };
  }

  #note(id: string, sighting: Sighting): void {
    this.#unwritten.set(id, { ...this.#unwritten.get(id), ...sighting });
    this.#writeSoon();
  }

  /** @param pauseMs since the last write, at least */
  #writeSoon(pauseMs = WRITE_MS): void {
    this.#nextPauseMs = Math.min(this.#nextPauseMs, pauseMs);
    if (this.#stopped || this.#isWriting || (this.#cancel !== null && pauseMs === WRITE_MS)) return;
    this.#cancel?.();
    const wait = Math.max(0, this.#writtenAt + pauseMs - this.clock.now());
    this.#cancel = this.clock.after(wait, () => {
      this.#cancel = null;
      this.#isWriting = true;
      this.#nextPauseMs = WRITE_MS;
      this.#writtenAt = this.clock.now();
      void this.#write().finally(() => {
        this.#isWriting = false;
        if (this.#devices.size + this.#unwritten.size > 0) this.#writeSoon(this.#nextPauseMs);
      });
    });
  }

  async #write(): Promise<void> {
    const { database, devices, now } = this.context.store;
    const batch = [...this.#unwritten];
    await this.#commit(async () => {
      await database.write(() => {
        for (const [id, sighting] of batch) devices.saw(id, sighting);
        if (this.#devices.size > 0) devices.sawAll(now());
      });
      for (const [id, sighting] of batch) if (this.#unwritten.get(id) === sighting) this.#unwritten.delete(id);
    });
  }

  async #commit(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const times = this.#failures.timesDue('write');
      if (times !== null)
        this.context.log.warn({ times, reason: messageOf(error) }, 'sightings of devices not recorded');
    }
  }
}

function budgetOf(
  { UsedPercent, RetryAfterS, LimitBytes, PeriodS, BackInS }: BudgetReport,
  now: number,
): ReportedBudget {
  const after = (seconds: number) => (seconds === 0 ? null : timestamp(now + seconds * 1000));
  const isLow = UsedPercent >= LOW_PERCENT;
  return {
    state: BackInS > 0 ? 'away' : RetryAfterS > 0 ? 'paused' : isLow ? 'low' : 'normal',
    used_percent: Math.round(UsedPercent),
    limit_bytes: LimitBytes === 0 ? null : LimitBytes,
    ends_at: after(PeriodS),
    back_at: after(BackInS),
  };
}
