import { messageOf } from '../lib/errors.ts';
import type { Clock } from '../lib/time/clock.ts';
import type { Before, Moment, Trial, UpdateRecords } from './update-records.ts';

/** How the services of the program are, as of now: the agent, the gateway, or both. */
export interface AgentView {
  /** Of the program that answers; null: one of them does not. */
  version: string | null;
  online: boolean;
  /** URLs of the tunnels that are online. */
  tunnels: readonly string[];
  /** How many sessions agents have at the gateway; 0 without one. */
  sessions: number;
  /** Of several gateways that share a database, how many of these agents are at that of this machine; left out: it is the only one. */
  ownAgents?: number;
  /** How often the process has ended since the last start of the service. */
  restarts: number;
}

/** The machine on which a version is tried. */
export interface TrialMachine {
  /** The version that the next start of the agent runs. @throws when no version is complete: a switch was interrupted */
  installed(): Promise<string>;
  /** Makes the next start run another version, which is on the disk. Repeating it is harmless. */
  switchTo(version: string): Promise<void>;
  agent: {
    stop(): Promise<void>;
    /** Asks for the start; whether it succeeds shows later. */
    start(): Promise<void>;
    look(): Promise<AgentView>;
    /**
     * What `doctor` of the installed version finds broken; null: nothing.
     *
     * @param known names of checks that failed before
     */
    essentials(known: readonly string[]): Promise<string | null>;
    /** How many seconds ago the agent has crashed, each time since the boot. */
    crashes(): Promise<number[]>;
  };
  data: {
    /** Copies the agent's data, unless there is a copy of this trial. */
    keep(): Promise<void>;
    /** Why the version before the update cannot have the data as they are, nor as they were; null: it can. */
    obstacle(): Promise<string | null>;
    /** Brings back what the version before the update cannot read, if anything. Repeating it is harmless. */
    restore(): Promise<void>;
    /** Ends what kept others from changing the data, which may have had to go back until now. Repeating it is harmless. */
    release(): Promise<void>;
  };
  turn: {
    /** Why another gateway of the same shared database may try a version now, and this one must not; null: this one may. */
    obstacle(): Promise<string | null>;
    /**
     * Lets the others go on, and says how it ended. Repeating it is harmless.
     *
     * @param reason of `givenUp`: why the others must not install the version; null: they may
     * @throws when they cannot be told
     */
    end(result: 'confirmed' | 'givenUp', reason: string | null): Promise<void>;
  };
  moment(): Promise<Moment>;
  clock: Clock;
  /** Takes the lines of the log. */
  tell(line: string): void;
}

/** What an interrupted attempt has to fit in again: the third interruption may be the version's own fault. */
const MAX_ATTEMPTS = 3;
/** How long the new version may take to be what the old one was. */
const WINDOW_MS = 120_000;
/** The same after a power cut: the network may come up late. */
const BOOT_WINDOW_MS = 300_000;
const POLL_MS = 2_000;
/** So many good looks in a row count. */
const GOOD_LOOKS = 3;
const MAX_RESTARTS = 3;
/** For so long, a gateway of several waits for one of the agents that went to the others; some never come back. */
const RETURN_MS = 45_000;
/** Such a share of the agents that a gateway had has to be back: some go for reasons of their own. */
const BACK_SHARE = 0.9;
/** For so long after it is confirmed, crashes of the new version make the device go back. */
const PROBATION_S = 24 * 3600;
/** So many crashes within so many seconds. */
const LOOP = { crashes: 3, withinS: 600 };
/** So many crashes in the probation, however far apart. */
const MAX_CRASHES = 5;
/** After that, a version is rejected even if the one before did not come online either. */
const MAX_DOUBTFUL = 3;

/**
 * Goes on with the trial under way, wherever it was interrupted. Runs the code of the version before the update, so that a new
 * version cannot keep the device from going back.
 *
 * @throws when the disk or systemd refuses; the caller repeats it later, and an agent runs meanwhile
 */
export async function continueTrial(machine: TrialMachine, records: UpdateRecords): Promise<void> {
  const trial = await records.trial();
  if (trial === null) return;
  if (trial.state === 'probation') return judgeCrashes(trial, machine, records);
  if (trial.state === 'returning') return goBack(trial, machine, records);
  const obstacle = await machine.turn.obstacle();
  if (obstacle !== null)
    return goBack(await giveUp({ ...trial, hasLostTurn: true }, obstacle, machine, records), machine, records);
  const tried: Trial = { ...trial, attempts: trial.attempts + 1 };
  const problem = await tryVersion(tried, machine, records);
  if (problem === null) return machine.turn.end('confirmed', null);
  await goBack(await giveUp(tried, problem, machine, records), machine, records);
}

/** @returns why the version is given up; null when it is confirmed */
async function tryVersion(trial: Trial, machine: TrialMachine, records: UpdateRecords): Promise<string | null> {
  const { to, from, before, attempts } = trial;
  const { agent, data, tell } = machine;
  try {
    await records.keepTrial({ ...trial, state: 'trying' });
    if (attempts > MAX_ATTEMPTS) return `it was interrupted ${MAX_ATTEMPTS} times`;
    tell(`trying version ${to}${attempts > 1 ? ` again, after an interruption (attempt ${attempts})` : ''}`);
    await agent.stop();
    await data.keep();
    await machine.switchTo(to);
    await agent.start();
    const problem = await untilItWorks(machine, to, before, attempts > 1 ? BOOT_WINDOW_MS : WINDOW_MS);
    if (problem !== null) return problem;
    // First: without its trial, an update could not end otherwise any more.
    const history = await records.history();
    await records.keepHistory({ ...history, last: outcome('confirmed', { from, to, reason: null }) });
    await records.keepTrial({ ...trial, state: 'probation', since: await machine.moment() });
    await data.release();
  } catch (error) {
    return messageOf(error);
  }
  const agents = before.sessions > 0 ? `, and its ${before.sessions} agents` : '';
  tell(`version ${to} confirmed: online, with all ${before.tunnels.length} tunnels that were online before${agents}`);
  return null;
}

/** @returns what is missing at the end of the time; null as soon as everything has been there for a while */
async function untilItWorks(
  machine: TrialMachine,
  version: string,
  before: Before,
  ms: number,
): Promise<string | null> {
  const { agent, clock } = machine;
  const end = clock.now() + ms;
  const returnedBy = clock.now() + RETURN_MS;
  let problem: string | null = 'it was not looked at';
  for (let good = 0; clock.now() < end; await clock.sleep(POLL_MS)) {
    const view = await agent.look();
    if (view.restarts >= MAX_RESTARTS) return `it ended ${view.restarts} times after its start`;
    problem = lackOf(view, version, before);
    if (problem === null && before.ownAgents > 0 && view.ownAgents === 0) {
      if (clock.now() < returnedBy) problem = 'none of its agents was back';
      else if (good === 0) machine.tell('none of its agents has come back: they stay at other gateways');
    }
    good = problem === null ? good + 1 : 0;
    if (good < GOOD_LOOKS) continue;
    problem = await agent.essentials(before.failed);
    if (problem === null) return null;
    good = 0;
  }
  return `${problem ?? 'it was not steady'} within ${ms / 1000} s`;
}

function lackOf({ version, online, tunnels, sessions }: AgentView, wanted: string, before: Before): string | null {
  if (version === null) return 'it did not answer';
  if (version !== wanted) return `version ${version} answered`;
  if (before.online && !online) return 'it was not online';
  const lost = before.tunnels.filter((url) => !tunnels.includes(url));
  if (lost.length === 0) {
    if (sessions >= before.sessions * BACK_SHARE) return null;
    return `${sessions} of ${before.sessions} agents were back`;
  }
  return `${lost[0]}${lost.length > 1 ? ` and ${lost.length - 1} more tunnels were` : ' was'} not online`;
}

/** Decides to go back, durably where the disk allows it: even a full disk must not keep the new version. */
async function giveUp(trial: Trial, reason: string, machine: TrialMachine, records: UpdateRecords): Promise<Trial> {
  const given: Trial = { ...trial, state: 'returning', reason };
  const refused = await records.keepTrial(given).then(
    () => null,
    (error: unknown) => messageOf(error),
  );
  machine.tell(`version ${trial.to} given up, going back to ${trial.from}: ${reason}`);
  if (refused !== null) machine.tell(`this decision could not be saved: ${refused}`);
  return given;
}

async function goBack(trial: Trial, machine: TrialMachine, records: UpdateRecords): Promise<void> {
  const { from, before } = trial;
  const { agent, data } = machine;
  const reason = trial.reason ?? 'unknown';
  if (trial.isJudged) return leave(trial, machine, records);
  const obstacle = await data.obstacle();
  if (obstacle !== null) return stay(trial, `${reason}; it stays nevertheless: ${obstacle}`, machine, records);
  // An agent that has come back in an interrupted attempt keeps running. One that does not answer may have no whole program.
  // Nothing was changed before the first attempt.
  if (trial.attempts > 0 && ((await agent.look()).version !== from || (await machine.installed()) !== from)) {
    await agent.stop();
    try {
      await data.restore();
    } finally {
      try {
        await machine.switchTo(from);
      } finally {
        await agent.start();
      }
    }
  }
  await data.release();
  const isVersionsFault = isTried(trial) && (await untilItWorks(machine, from, before, WINDOW_MS)) === null;
  await remember(trial, reason, isVersionsFault, records);
  const judged = { ...trial, isJudged: true };
  await records.keepTrial(judged);
  await leave(judged, machine, records);
}

/** Ends a trial whose version was given up, once the others know that. */
async function leave(trial: Trial, { turn }: TrialMachine, records: UpdateRecords): Promise<void> {
  const { rejected } = await records.history();
  const isRejected = isTried(trial) && rejected.some(({ version }) => version === trial.to);
  await turn.end('givenUp', isRejected ? (trial.reason ?? 'unknown') : null);
  await records.endTrial();
}

/** Whether the version itself has failed: another gateway may have had its turn. */
const isTried = ({ attempts, hasLostTurn }: Trial) => attempts > 0 && !hasLostTurn;

/** Ends a trial with the new version in place, though it was given up: going back would lose data. */
async function stay(
  { from, to }: Trial,
  reason: string,
  { tell, data, agent }: TrialMachine,
  records: UpdateRecords,
): Promise<void> {
  tell(`version ${to} stays: ${reason}`);
  await agent.start();
  const history = await records.history();
  await records.keepHistory({ ...history, last: outcome('kept', { from, to, reason }) });
  await data.release();
  await records.endTrial();
}

/** Of an update while the network was down, nobody knows whose fault it was: it may be tried again, some times. */
async function remember(trial: Trial, reason: string, isVersionsFault: boolean, records: UpdateRecords): Promise<void> {
  const { from, to } = trial;
  const history = await records.history();
  if (!isTried(trial)) {
    await records.keepHistory({ ...history, last: outcome('returned', { from, to, reason }) });
    return;
  }
  const doubts = (history.doubtful[to] ?? 0) + 1;
  const isRejected = isVersionsFault || doubts >= MAX_DOUBTFUL;
  const others = history.rejected.filter(({ version }) => version !== to);
  const told = isVersionsFault
    ? reason
    : `${reason}; then ${from} was not online either, so the network may be the cause`;
  await records.keepHistory({
    ...history,
    rejected: isRejected ? [...others, { version: to, reason: told }] : history.rejected,
    doubtful: { ...history.doubtful, [to]: doubts },
    last: outcome('returned', { from, to, reason: told }),
  });
}

const outcome = <R extends 'confirmed' | 'returned' | 'kept'>(
  result: R,
  facts: { from: string; to: string; reason: string | null },
) => ({ result, ...facts, at: new Date().toISOString() });

/** Called after each crash, and at each boot. */
async function judgeCrashes(trial: Trial, machine: TrialMachine, records: UpdateRecords): Promise<void> {
  const { since } = trial;
  // A power cut may have come first.
  await machine.data.release();
  const now = await machine.moment();
  const age = since === null ? PROBATION_S : secondsBetween(since, now);
  if (age >= PROBATION_S) {
    await machine.turn.end('confirmed', null);
    return records.endTrial();
  }
  const crashes = (await machine.agent.crashes()).filter((ago) => since?.boot !== now.boot || ago < age);
  const recent = crashes.filter((ago) => ago < LOOP.withinS).length;
  // The shared database may not have answered right after the confirmation.
  if (recent < LOOP.crashes && crashes.length < MAX_CRASHES) return machine.turn.end('confirmed', null);
  const reason =
    recent >= LOOP.crashes
      ? `it crashed ${recent} times within ${LOOP.withinS / 60} min`
      : `it crashed ${crashes.length} times`;
  // Tunnels may have been deleted since.
  const before = { ...trial.before, tunnels: [] };
  await goBack(await giveUp({ ...trial, before }, reason, machine, records), machine, records);
}

/** Within a boot, a clock that jumps does not matter; across boots, the wall clock is all there is. */
function secondsBetween(from: Moment, to: Moment): number {
  return from.boot === to.boot ? to.uptime - from.uptime : (to.wall - from.wall) / 1000;
}
