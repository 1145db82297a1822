import type { Turns, UpdateTurns } from '../gateway/offline/update-turns.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { ownCommand } from '../lib/process/own-command.ts';
import { systemClock } from '../lib/time/clock.ts';
import type { Host } from '../service/host.ts';
import { GATEWAY_SERVICE, socketOf } from '../service/service.ts';
import type { ProgramPaths } from '../service/unit.ts';
import { GatewayService, settingsOfGateway } from './gateway-service.ts';
import type { AgentView, TrialMachine } from './trial.ts';
import type { Sharing } from './update-records.ts';

type NodePlace = NonNullable<Sharing['node']>;

/** For so long, a gateway's agents may go to others before it is stopped. */
const DRAIN_MS = 120_000;
/** How long a trial waits for the shared database before it begins, and for its turn before that. */
const ANSWER_MS = 60_000;
const TURN_MS = 15 * 60_000;
const AGAIN_MS = 5_000;

/** The gateway's service on this machine, as one of several that share a database. */
export class ClusterGatewayService extends GatewayService {
  /** @param tell takes a line when its agents do not leave in time */
  constructor(
    host: Host,
    paths: ProgramPaths,
    private readonly node: NodePlace,
    private readonly tell: (line: string) => void,
  ) {
    super(host, paths);
  }

  override async look(): Promise<AgentView> {
    const restarts = await this.restarts();
    try {
      const settings = settingsOfGateway(this.host);
      const { version, agents, ownAgents } = await inCluster(this.host, (turns) => turns.look(this.node.id, settings));
      return { version, online: version !== null, tunnels: [], sessions: agents, ownAgents, restarts };
    } catch {
      // The gateway's own log says why; here, it only counts that nobody can use it.
      return { version: null, online: false, tunnels: [], sessions: 0, restarts };
    }
  }

  override async empty(): Promise<void> {
    const options = { withinMs: DRAIN_MS, sleep: (ms: number) => systemClock.sleep(ms) };
    const problem = await inCluster(this.host, (turns) => turns.drain(this.node.id, options)).then(
      (isEmpty) => (isEmpty ? null : `it still has sessions after ${DRAIN_MS / 1000} s`),
      (error: unknown) => messageOf(error),
    );
    // A gateway that cannot be drained may be the reason for the update, or for going back.
    if (problem !== null) this.tell(`gateway stopped with its agents: ${problem}`);
    await this.#closeSockets();
  }

  /**
   * Has clients go to other gateways while the process still accepts those that have come here. Later, what waits in the sockets that
   * systemd holds would be reset with them. There are none when the ports are not held.
   */
  async #closeSockets(): Promise<void> {
    const unit = socketOf(GATEWAY_SERVICE.name);
    try {
      const state = await this.host.run('systemctl', 'show', '--property=LoadState', '--value', unit);
      if (state.trim() === 'loaded') await this.host.run('systemctl', 'stop', unit);
    } catch (error) {
      this.tell(`ports not closed before the gateway stops, so that clients may be cut off: ${messageOf(error)}`);
    }
  }
}

/** Works with the turns of the gateways that share the database of this machine's one. */
async function inCluster<T>(host: Host, work: (turns: UpdateTurns) => Promise<T>): Promise<T> {
  const { databaseUrl } = settingsOfGateway(host);
  if (databaseUrl === null) throw new OperatorError('GATEWAY_DATABASE_URL was removed meanwhile');
  // Its code is not there where only agents run.
  const code = await import('../gateway/offline/update-turns.ts');
  return code.UpdateTurns.use(databaseUrl, work);
}

/**
 * How the gateway of this machine shares its database; null: it has one of its own.
 *
 * @throws {OperatorError} when it shares one, and does not serve it
 */
export async function sharingOf(host: Host): Promise<Sharing | null> {
  const { databaseUrl, nodeAddress: address } = settingsOfGateway(host);
  if (databaseUrl === null) return null;
  if (address === null) return { node: null };
  const { nodes } = await inCluster(host, (turns) => turns.read());
  const known = nodes.filter((node) => node.address === address);
  const [own] = known.toSorted((one, other) => one.silentSeconds - other.silentSeconds);
  if (own !== undefined) return { node: { id: own.id, address } };
  throw new OperatorError(
    `update refused: no gateway serves the shared database at ${address}: start this one first, or update it by hand (docs/cluster.md)`,
  );
}

/** The version that a gateway updates to, and whether a person asked for it. */
interface Step {
  readonly to: string;
  /** Nobody waits for an automatic update, and nobody looks at it. */
  readonly isAutomatic: boolean;
  /** Whether a person has named the version. */
  readonly isNamed: boolean;
}

/** What keeps a gateway from updating itself: `wait`: it ends. */
interface Obstacle {
  readonly kind: 'wait' | 'refused';
  readonly reason: string;
}

/** Why a gateway must not begin an update now; null: it may. */
export function obstacleOf({ turn, givenUp, nodes, now }: Turns, own: NodePlace, step: Step): Obstacle | null {
  const others = nodes.filter((node) => node.id !== own.id);
  const strange = others.find(({ build }) => !areNeighbours(build, step.to));
  if (strange !== undefined) {
    const reason = `the gateway ${strange.address} runs version ${strange.build}, and only neighbouring minor versions can share a database`;
    const advice = 'choose a version between them with --to, or stop all gateways and update them by hand';
    return { kind: 'refused', reason: `${reason}: ${isSilent(strange) ? whenLost(strange.id) : advice}` };
  }
  if (givenUp?.version === step.to && !step.isNamed) {
    const reason = `the gateway ${givenUp.address} has given up version ${step.to}: ${givenUp.reason}`;
    return { kind: 'refused', reason: `${reason}; to try it here: --to ${step.to}` };
  }
  if (turn !== null && turn.node !== own.id) return { kind: 'wait', reason: whoseTurn(turn, nodes, now) };
  const drained = others.find(({ draining }) => draining);
  if (drained !== undefined)
    return { kind: 'wait', reason: `the gateway ${drained.address} is drained, for an upgrade by hand` };
  const silent = others.find(isSilent);
  if (!step.isAutomatic || silent === undefined) return null;
  return { kind: 'wait', reason: `the gateway ${silent.address} is silent, so the others are needed` };
}

const SILENT_S = 10;
const isSilent = ({ silentSeconds }: Turns['nodes'][number]) => silentSeconds > SILENT_S;

const whenLost = (id: string) => `if its machine is lost, run: ${ownCommand(`gateway nodes remove ${id}`)}`;

/** A trial takes longer only when its gateway goes back. */
const USUAL_MIN = 5;

function whoseTurn(turn: NonNullable<Turns['turn']>, nodes: Turns['nodes'], now: number): string {
  const { node: id, address, version, at } = turn;
  const minutes = Math.floor((now - Date.parse(at)) / 60_000);
  const isThere = nodes.some((node) => node.id === id && !isSilent(node));
  const advice = isThere || minutes < USUAL_MIN ? '' : `, and is not back: ${whenLost(id)}`;
  return `the gateway ${address} has its turn for version ${version}, since ${minutes} min${advice}`;
}

/** Whether two versions may share a database, as docs/promises.md says. */
function areNeighbours(one: string, other: string): boolean {
  const [[major = 0, minor = 0], [otherMajor = 0, otherMinor = 0]] = [one, other].map((version) =>
    version.split('.').map(Number),
  ) as [number[], number[]];
  return major === otherMajor && Math.abs(minor - otherMinor) <= 1;
}

/** The turn of this machine's gateway among those that share its database. */
export class ClusterTurn {
  constructor(
    private readonly host: Host,
    private readonly node: NodePlace,
    private readonly step: Step,
  ) {}

  /** @throws {OperatorError} when this gateway could not take its turn, however long it waited */
  async requirePossible(): Promise<void> {
    const obstacle = obstacleOf(await inCluster(this.host, (turns) => turns.read()), this.node, this.step);
    if (obstacle?.kind === 'refused') throw new OperatorError(`update refused: ${obstacle.reason}`);
  }

  /**
   * Begins a trial in the turn of this gateway, for which it waits for some time.
   *
   * @param begin what comes to no trial gives the turn back
   * @param tell takes a line about what it waits for
   * @throws {OperatorError} when the turn does not come
   */
  async during(begin: () => Promise<void>, tell: (line: string) => void): Promise<void> {
    await this.#take(tell);
    try {
      await begin();
    } catch (error) {
      await this.#end({}).catch((problem: unknown) =>
        tell(`turn not given back, so the others wait for 15 min: ${messageOf(problem)}`),
      );
      throw error;
    }
  }

  async #take(tell: (line: string) => void): Promise<void> {
    const end = systemClock.now() + TURN_MS;
    for (let told = ''; ; await systemClock.sleep(AGAIN_MS)) {
      const obstacle = await this.#claim();
      if (obstacle === null) return;
      if (obstacle.kind === 'refused') throw new OperatorError(`update refused: ${obstacle.reason}`);
      if (systemClock.now() > end) throw new OperatorError(`update postponed: ${obstacle.reason}`);
      // The minutes count up.
      const said = obstacle.reason.replace(/since \d+ min/, '');
      if (said !== told) tell(`waiting for its turn: ${obstacle.reason}`);
      told = said;
    }
  }

  /** For the trial, see {@link TrialMachine}. */
  ofTrial(): TrialMachine['turn'] {
    return {
      obstacle: async () => {
        for (const end = systemClock.now() + ANSWER_MS; ; await systemClock.sleep(AGAIN_MS)) {
          try {
            return (await this.#confirm()) ? null : 'its turn was given to another gateway meanwhile';
          } catch (error) {
            if (systemClock.now() > end) return `the shared database did not say whose turn it is: ${messageOf(error)}`;
          }
        }
      },
      end: (result, reason) => this.#end({ hasWorked: result === 'confirmed', reason }),
    };
  }

  /** Makes the turn this gateway's. @returns why that is not possible; null: it is */
  #claim(): Promise<Obstacle | null> {
    return this.#change((turns) => {
      const result = obstacleOf(turns, this.node, this.step);
      return { changes: result === null ? { turn: this.#turn('preparing', turns.now) } : null, result };
    });
  }

  /** @returns whether it still has its turn, which then ends with the trial */
  #confirm(): Promise<boolean> {
    return this.#change((turns) => {
      const result = turns.turn?.node === this.node.id;
      return { changes: result ? { turn: this.#turn('trying', turns.now) } : null, result };
    });
  }

  #end({ hasWorked = false, reason = null }: { hasWorked?: boolean; reason?: string | null }): Promise<void> {
    const { id: node, address } = this.node;
    return this.#change<void>(({ turn, givenUp, now }) => {
      const isOwn = turn?.node === node;
      const failed = reason === null ? undefined : { node, address, version: this.step.to, at: timeOf(now), reason };
      const over = isOwn && hasWorked && givenUp !== null ? null : failed;
      if (!isOwn && over === undefined) return { changes: null, result: undefined };
      return {
        changes: { ...(isOwn && { turn: null }), ...(over !== undefined && { givenUp: over }) },
        result: undefined,
      };
    });
  }

  #turn(state: 'preparing' | 'trying', now: number) {
    const { id: node, address } = this.node;
    return { node, address, version: this.step.to, at: timeOf(now), state };
  }

  #change: UpdateTurns['change'] = (decide) => inCluster(this.host, (turns) => turns.change(decide));
}

const timeOf = (now: number) => new Date(now).toISOString();

export const NO_TURN: TrialMachine['turn'] = { obstacle: async () => null, end: async () => {} };
