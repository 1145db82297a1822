import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import type { LiveSession, LiveView } from '../endpoints/live-view.ts';
import type { Store } from '../store/store.ts';

/** How exact `last_seen_at` is. */
const CHECK_MS = 10_000;
/** How often the time of devices that stay online is written: disks wear out. */
const REFRESH_MS = 6 * 3_600_000;

/** Records when devices were last online, from where and with which version. */
export class DeviceSightings {
  /** The sessions of the last check, by the id of their authtoken. */
  #before: ReadonlyMap<string, LiveSession> = new Map();
  #refreshedAt = performance.now();
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly store: Store,
    private readonly live: Pick<LiveView, 'sessions'>,
    private readonly log: Log,
  ) {}

  start(): void {
    this.#timer = setInterval(() => void this.check(), CHECK_MS).unref();
  }

  /** Records the devices that are online now. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#refreshedAt = Number.NEGATIVE_INFINITY;
    await this.check();
  }

  /** Records the devices that came or went since the last check. */
  async check(): Promise<void> {
    const now = new Map<string, LiveSession>();
    for (const session of this.live.sessions()) if (session.credentialId) now.set(session.credentialId, session);
    const isDue = performance.now() - this.#refreshedAt >= REFRESH_MS;
    const came = [...now].filter(([id, session]) => isDue || this.#before.get(id)?.id !== session.id);
    const went = [...this.#before].filter(([id]) => !now.has(id));
    this.#before = now;
    if (isDue) this.#refreshedAt = performance.now();
    if (came.length + went.length === 0) return;
    await this.#record([...came, ...went]).catch((error: unknown) => {
      this.log.warn({ reason: messageOf(error) }, 'sightings of devices not recorded');
    });
  }

  async #record(seen: readonly (readonly [string, LiveSession])[]): Promise<void> {
    const { database, devices, now } = this.store;
    const known = seen.filter(([id]) => devices.byCredential(id) !== null);
    if (known.length === 0) return;
    await database.write(() => {
      for (const [id, { ip, agentVersion }] of known) {
        const device = devices.byCredential(id);
        if (device) devices.update({ ...device, last_seen_at: now(), last_ip: ip, agent_version: agentVersion });
      }
    });
  }
}
