import { join } from 'node:path';
import { messageOf } from '../../lib/errors.ts';
import { writeDurably } from '../../lib/files/durable-write.ts';
import type { Log } from '../../lib/log/log.ts';
import type { Clock } from '../../lib/time/clock.ts';
import { caIdOf, certificatesIn } from '../../lib/tls/pinned-chain.ts';
import { AGENT_CAS_PATH } from '../../management/resources/device.ts';
import { isCloudAddress, type Settings } from '../../settings/agent-settings.ts';
import { hashOf, LEARNED_CAS, learnedCas, learnedText, type OwnCa } from '../../settings/learned-cas.ts';
import { type ApiAccess, apiOf, postTo, timePlace } from './gateway-calls.ts';

/** After the first session, some time in this range: a fleet may come online at once. */
const FIRST_MS = 600_000;
const DAY_MS = 86_400_000;
/** On a link whose data is expensive: 4 kB each time. */
const METERED_DAYS = 7;

/**
 * Follows the CA of the agent's gateway while that is being changed. The gateway proves by a CA that the device trusts which ones
 * it has; from then on, the device trusts these. It is asked once a day, on a metered link once a week, over a connection that
 * needs no verification.
 */
export class CaFollower {
  #cancel: (() => void) | null = null;
  #stopped = false;
  #following: Promise<void> | null = null;

  constructor(
    private readonly context: {
      readonly clock: Clock;
      readonly log: Pick<Log, 'info' | 'debug'>;
      readonly settings: Pick<Settings, 'dataDir'>;
    },
    /** Null: the session has not begun yet. */
    private readonly access: () => ApiAccess | null,
    private readonly isMetered: () => boolean,
  ) {}

  /** The session is online. */
  online(): void {
    this.#cancel ??= this.context.clock.after(this.context.clock.random() * FIRST_MS, () => void this.look());
  }

  stop(): void {
    this.#stopped = true;
    this.#cancel?.();
  }

  /** Asks now, and at intervals from now on. Never rejects. */
  look(): Promise<void> {
    const { clock, log } = this.context;
    this.#cancel?.();
    const days = this.isMetered() ? METERED_DAYS : 1;
    if (!this.#stopped) this.#cancel = clock.after(days * DAY_MS * (0.9 + clock.random() / 10), () => void this.look());
    this.#following ??= this.#follow()
      .catch((error: unknown) => log.debug({ reason: messageOf(error) }, 'certificate authorities not asked for'))
      .finally(() => {
        this.#following = null;
      });
    return this.#following;
  }

  async #follow(): Promise<void> {
    const access = this.access();
    const ownCa = access?.ownCa ?? null;
    if (access === null || ownCa === null || isCloudAddress(access.serverAddr)) return;
    const { askForTime } = await import('./pinned-time.ts');
    const proved = await askForTime(await timePlace({ ...access, pinned: this.#proving(ownCa) }));
    if (proved.cas !== null) await this.#trust(proved.cas, proved.ended, ownCa);
    await this.#tell(access, ownCa);
  }

  /** PEM of the CAs that may prove which ones the gateway has. One that another is to replace, because its key is out, may not. */
  #proving(ownCa: OwnCa): string | Uint8Array {
    const newest = this.#learned(ownCa)?.cas;
    return newest ? String(certificatesIn(newest).at(-1)) : ownCa.pem;
  }

  async #trust(proved: readonly string[], ended: readonly string[], ownCa: OwnCa): Promise<void> {
    const cas = proved.flatMap((pem) => certificatesIn(pem)).filter(({ ca }) => ca);
    const ids = cas.map(caIdOf);
    const learned = this.#learned(ownCa);
    const present = certificatesIn(ownCa.pem);
    const isChanging = new Set(ids).size > 1;
    const areTrusted = cas.every(({ raw }) => present.some((one) => one.raw.equals(raw)));
    // The file in the settings may have been made while both were trusted.
    const hasEnded = present.map(caIdOf).some((id) => ended.includes(id) && !ids.includes(id));
    if (cas.length === 0 || (learned === null && areTrusted && !isChanging && !hasEnded)) return;
    const shown = [...new Set([...(learned?.shown ?? []), ...ended, ...ids])];
    // The file in the settings may have the CAs of other servers.
    const others = certificatesIn(ownCa.configured).filter((one) => !shown.includes(caIdOf(one)));
    const pem = [...others, ...cas].map(String).join('');
    if (pem === learned?.cas) return;
    await this.#keep(ownCa, { cas: pem, shown, toldWith: null });
    this.context.log.info({ ca_ids: ids }, 'certificate authorities of the gateway learned');
  }

  /**
   * So that the gateway knows which devices have not followed yet. While its CA is being changed, it is told again: it may have lost
   * that.
   */
  async #tell(access: ApiAccess, ownCa: OwnCa): Promise<void> {
    const learned = this.#learned(ownCa);
    if (learned === null) return;
    const ids = certificatesIn(learned.cas).map(caIdOf);
    const cas = [...new Set(ids)].filter((id) => learned.shown.includes(id));
    if (cas.length === 1 && learned.toldWith === hashOf(access.authtoken())) return;
    const place = await apiOf(access);
    const { authtoken } = place;
    await postTo(place, AGENT_CAS_PATH, { authtoken, cas });
    const toldWith = hashOf(authtoken);
    if (toldWith !== learned.toldWith) await this.#keep(ownCa, { ...learned, toldWith });
  }

  #learned({ configured }: OwnCa): ReturnType<typeof learnedCas> {
    return learnedCas(this.context.settings.dataDir, configured);
  }

  async #keep(ownCa: OwnCa, learned: Parameters<typeof learnedText>[1]): Promise<void> {
    const { dataDir } = this.context.settings;
    await writeDurably(join(dataDir, LEARNED_CAS), learnedText(ownCa.configured, learned), 0o600);
  }
}
