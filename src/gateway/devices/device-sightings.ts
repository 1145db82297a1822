import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { type Clock, systemClock } from '../../lib/time/clock.ts';
import type { DeviceRow, Sighting } from '../store/devices.ts';
import { type Store, timestamp } from '../store/store.ts';

/** How often at most anything is written, because disks wear out: a killed gateway forgets so much. */
const WRITE_MS = 10_000;

/** A session of an agent; a device can have several at a time. */
export interface DeviceSession {
  readonly credential: { readonly id: string };
  readonly agent: { readonly program: string };
  readonly address: string;
  /** For how long nothing was heard of it when it ended. */
  readonly silentMs: number;
}

interface DeviceSessions {
  readonly sessions: Iterable<DeviceSession>;
  on(event: 'added' | 'removed', listener: (session: DeviceSession) => void): unknown;
}

/**
 * Records when devices were last online, from where and with which version. A device is marked as online once; one row says
 * until when the gateway ran, which is when all of them were last seen after a crash. Without devices, nothing is written.
 */
export class DeviceSightings {
  readonly #devices = new Map<DeviceSession, string>();
  readonly #online = new Map<string, number>();
  /** What the database does not have yet, by device. */
  readonly #unwritten = new Map<string, Sighting>();
  readonly #failures = new Repeats();
  #writtenAt = Number.NEGATIVE_INFINITY;
  #cancel: (() => void) | null = null;
  #stopped = false;

  constructor(
    private readonly store: Store,
    private readonly log: Log,
    /** Whether an authtoken has a session at another gateway; null: there is no other one. */
    private readonly isElsewhere: ((credentialId: string) => boolean) | null = null,
    private readonly clock: Clock = systemClock,
  ) {}

  /** Records what a gateway that was killed could not, then watches the sessions. */
  async start(sessions: DeviceSessions): Promise<void> {
    const { database, devices } = this.store;
    if (this.isElsewhere === null && devices.areLeftOnline())
      await this.#commit(() => database.write(() => devices.endSightings()));
    sessions.on('added', (session) => this.#came(session));
    sessions.on('removed', (session) => this.#went(session));
    for (const session of sessions.sessions) this.#came(session);
  }

  /** Records that the devices that are online now were seen until now. */
  async stop(): Promise<void> {
    for (const session of [...this.#devices.keys()]) this.#went(session);
    this.#stopped = true;
    this.#cancel?.();
    if (this.#unwritten.size > 0) await this.#write();
  }

  /** A device's row with what is not in the database yet. */
  latest(row: DeviceRow): DeviceRow {
    return { ...row, ...this.#unwritten.get(row.id) };
  }

  #came(session: DeviceSession): void {
    const device = this.store.devices.byCredential(session.credential.id);
    if (device === null) return;
    this.#devices.set(session, device.id);
    this.#online.set(device.id, (this.#online.get(device.id) ?? 0) + 1);
    this.#note(device.id, session, true);
  }

  #went(session: DeviceSession): void {
    const id = this.#devices.get(session);
    if (id === undefined) return;
    this.#devices.delete(session);
    const left = (this.#online.get(id) ?? 0) - 1;
    if (left > 0) {
      this.#online.set(id, left);
      return;
    }
    this.#online.delete(id);
    if (!this.isElsewhere?.(session.credential.id)) this.#note(id, session, false);
  }

  #note(id: string, { agent, address, silentMs }: DeviceSession, online: boolean): void {
    const seenAt = Date.parse(this.store.now()) - silentMs;
    this.#unwritten.set(id, {
      online,
      last_seen_at: timestamp(seenAt),
      last_ip: address,
      agent_version: agent.program,
    });
    this.#writeSoon();
  }

  #writeSoon(): void {
    if (this.#cancel !== null || this.#stopped) return;
    const wait = Math.max(0, this.#writtenAt + WRITE_MS - this.clock.now());
    this.#cancel = this.clock.after(wait, () => {
      this.#writtenAt = this.clock.now();
      void this.#write().finally(() => {
        this.#cancel = null;
        if (this.#online.size + this.#unwritten.size > 0) this.#writeSoon();
      });
    });
  }

  async #write(): Promise<void> {
    const { database, devices, now } = this.store;
    const batch = [...this.#unwritten];
    await this.#commit(async () => {
      await database.write(() => {
        for (const [id, sighting] of batch) devices.saw(id, sighting);
        if (this.#online.size > 0) devices.sawAll(now());
      });
      for (const [id, sighting] of batch) if (this.#unwritten.get(id) === sighting) this.#unwritten.delete(id);
    });
  }

  async #commit(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const times = this.#failures.timesDue('write');
      if (times !== null) this.log.warn({ times, reason: messageOf(error) }, 'sightings of devices not recorded');
    }
  }
}
