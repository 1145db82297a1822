import { messageOf } from '../../lib/errors.ts';
import type { AgentUpdateAnswer, AgentUpdateReport } from '../../management/resources/agent-update.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { LiveFinder } from '../endpoints/live-view.ts';
import { type AgentUpdateRow, stoppedVersions, stopVersion } from '../store/agent-updates.ts';

/** Longer than a device takes to try a version and to go back: then it is back, or stays away. */
const TRIAL_MS = 10 * 60_000;
/** After the gateway's start, agents that are not back yet are not away. */
const SETTLING_MS = 5 * 60_000;
/** A version is stopped when so many devices did not stay on it, and they are such a share of those that have taken it. */
const MIN_FAILED = 2;
const FAILED_SHARE = 1 / 10;
/** So many devices try a version at the same time; more, once so many of ten times as many stay on it. */
const MIN_TRYING = 3;
const TRYING_SHARE = 1 / 10;
const WAIT_S = 60;

const GO: AgentUpdateAnswer = { decision: 'go', reason: null, retry_after_s: null };

type Parts = Pick<GatewayContext, 'store' | 'activity' | 'clock' | 'log'> & {
  live: { find: Pick<LiveFinder, 'sessionsOf'> };
};

/** What is known of the devices that have taken a version. */
interface Tally {
  taken: number;
  confirmed: number;
  /** Those whose result is not known yet. */
  trying: number;
  returned: AgentUpdateRow[];
  /** How many were not heard of in time, and are offline. */
  away: number;
}

/** Coordinates updates that nobody has asked for: few devices try a version first, and it is stopped when they do not stay on it. */
export class FleetUpdates {
  readonly #startedAt: number;
  readonly #later = new Map<string, () => void>();

  constructor(
    private readonly parts: Parts,
    /** Whether this gateway decides; of several, it is the one that is asked. */
    private readonly isJudge: () => boolean = () => true,
  ) {
    this.#startedAt = parts.clock.now();
    for (const version of parts.store.agentUpdates.unsettled()) this.#judgeLater(version, SETTLING_MS);
  }

  stop(): void {
    for (const cancel of this.#later.values()) cancel();
    this.#later.clear();
  }

  /**
   * Records what an agent says about an update, and answers whether it may go on.
   *
   * @param credentialId of its authtoken
   */
  async take(
    credentialId: string,
    { version, state, reason }: Omit<AgentUpdateReport, 'authtoken'>,
  ): Promise<AgentUpdateAnswer> {
    const { agentUpdates, database, now } = this.parts.store;
    if (state === 'wanted' || state === 'started') await this.#judge(version);
    if (state === 'wanted') return this.#answer(version, credentialId);
    const row = agentUpdates.newRow({ id: credentialId, created_at: now(), version });
    if (state === 'started') {
      // In one transaction: devices ask at the same moment.
      const answer = await database.write(() => {
        const decided = this.#answer(version, credentialId);
        if (decided.decision === 'go') agentUpdates.put(row);
        return decided;
      }, null);
      this.#judgeLater(version, TRIAL_MS + 1_000);
      return answer;
    }
    await database.write(() => {
      const before = agentUpdates.get(credentialId);
      agentUpdates.put({ ...(before?.version === version ? before : row), result: state, reason: reason ?? null });
    }, null);
    if (state === 'returned') await this.#judge(version);
    return GO;
  }

  #answer(version: string, credentialId: string): AgentUpdateAnswer {
    const { store } = this.parts;
    const stopped = stoppedVersions(store.database).find((each) => each.version === version);
    if (stopped !== undefined) return { decision: 'stop', reason: stopped.reason, retry_after_s: null };
    const { confirmed, trying, returned, away } = this.#tally(version, credentialId);
    // Those that failed keep their places.
    const taken = trying + returned.length + away;
    if (taken < Math.max(MIN_TRYING, Math.ceil(confirmed * TRYING_SHARE))) return GO;
    const reason = `version ${version} is tried by a few devices first, whose results are not known yet`;
    return { decision: 'wait', reason, retry_after_s: WAIT_S };
  }

  /** @param except the credential that asks */
  #tally(version: string, except: string | null): Tally {
    const { store, live, clock } = this.parts;
    const isOnline = (credential: string) => live.find.sessionsOf(credential).length > 0;
    const isSettled = clock.now() - this.#startedAt >= SETTLING_MS;
    const now = Date.parse(store.now());
    const tally: Tally = { taken: 0, confirmed: 0, trying: 0, returned: [], away: 0 };
    for (const row of store.agentUpdates.to(version)) {
      if (row.id === except) continue;
      tally.taken += 1;
      const isLate = now - Date.parse(row.created_at) >= TRIAL_MS;
      if (row.result === 'confirmed') tally.confirmed += 1;
      else if (row.result === 'returned') tally.returned.push(row);
      else if (!isLate || (!isSettled && !isOnline(row.id))) tally.trying += 1;
      else if (!isOnline(row.id)) tally.away += 1;
    }
    return tally;
  }

  #judgeLater(version: string, ms: number): void {
    this.#later.get(version)?.();
    const cancel = this.parts.clock.after(ms, () => {
      this.#later.delete(version);
      this.#judge(version).catch((err: unknown) => {
        this.parts.log.warn({ version, reason: messageOf(err) }, 'update of devices not stopped');
      });
    });
    this.#later.set(version, cancel);
  }

  /** Stops a version that devices do not stay on. */
  async #judge(version: string): Promise<void> {
    const { store, activity, log } = this.parts;
    if (!this.isJudge()) return;
    const { taken, returned, away } = this.#tally(version, null);
    const failed = returned.length + away;
    if (failed < MIN_FAILED || failed < taken * FAILED_SHARE) return;
    const reason = whyStopped(version, { taken, returned, away });
    const stopped = { version, reason, at: store.now(), isDecided: false };
    if (!(await store.database.write(() => stopVersion(store.database, stopped), null))) return;
    activity.note('update_stopped.v0', () => ({ version, reason }));
    log.error({ version, reason }, 'update of devices stopped');
  }
}

function whyStopped(version: string, { taken, returned, away }: Pick<Tally, 'taken' | 'returned' | 'away'>): string {
  const said = returned.at(-1)?.reason;
  const parts = [
    ...(returned.length > 0 ? [`${returned.length} went back${said ? `, one because ${said}` : ''}`] : []),
    ...(away > 0 ? [`${away} did not come back`] : []),
  ];
  return `of ${taken} devices that have taken version ${version}, ${parts.join(', and ')}`;
}
