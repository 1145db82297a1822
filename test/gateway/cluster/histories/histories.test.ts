import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { GatewayOptions } from '../../../../src/gateway/context/gateway-options.ts';
import type { PublicClient } from '../../../faults/public-client.ts';
import { NO_MOUNT } from '../../../support/disk.ts';
import { NO_POSTGRES } from '../../../support/postgres-server.ts';
import { unless } from '../../../support/requirements.ts';
import { seeded } from '../../../support/seeded.ts';
import { until } from '../../../support/until.ts';
import { CommitCut } from './commit-cut.ts';
import { type Credential, HistoryAgent } from './history-agent.ts';
import { HistoryCluster } from './history-cluster.ts';
import { type HistoryNode, PERIODS } from './history-node.ts';
import { ServingRecord } from './serving-record.ts';
import { WritesRecord } from './writes-record.ts';

/** Histories that go on at once at the same gateways, and suffer the same faults. */
const AT_ONCE = 12;
const CLUSTERS = 2;
const HISTORIES = Number(process.env.HISTORIES ?? 12);
/** More than a few begin with a random one, unless it is given: a failure names it. */
const FIRST = Number(process.env.FIRST_HISTORY ?? (HISTORIES > 12 ? Math.floor(Math.random() * 1_000_000) : 1));
const NAMES = ['a', 'b', 'c'];
/** Fewer beside other tests. */
const ROUNDS = process.env.HISTORIES ? 12 : 6;
const ACTS = 6;
const ASK_EVERY_MS = 25;
const MAX_ASKING = 60;
/** More than the longest period by which gateways rely on each other. */
const CLOCK_JUMP_MS = 7_200_000;
/** Positions at which a round breaks commits of each gateway. */
const CUTS = 3;
/** How long a gateway is waited for to commit something. */
const CUT_MS = 1_000;
/** So many histories break commits at every position. */
const ENOUGH = 200;
const LOST = 'shared database was put back to an older state: what came after it is gone';
const SET_ASIDE = 'damaged copy of the shared database set aside';
const DISK_FULL = /gateway\.db cannot be written/;
const LOCK = 'LOCK TABLE device_agent.rows, device_agent.nodes, device_agent.cluster IN ACCESS EXCLUSIVE MODE';
/** Settings that all gateways must share, and what one that differs says as it refuses to start. */
const DIFFERING: [Partial<GatewayOptions>, string][] = [
  [{ domain: 'other.localhost' }, 'GATEWAY_DOMAIN is "other.localhost" here and "localhost" at the other gateways'],
  [{ apiUrl: 'https://other' }, 'GATEWAY_API_URL is "https://other" here and not set at the other gateways'],
];

it(`no name is served for two authtokens, whatever breaks, and nothing that was answered is lost (${HISTORIES} histories)`, {
  timeout: 240_000 + 20_000 * HISTORIES,
  ...unless(NO_POSTGRES),
}, async () => {
  const count = Math.min(AT_ONCE, Math.ceil(HISTORIES / CLUSTERS));
  const groups = Array.from({ length: Math.ceil(HISTORIES / count) }, (_, at) => FIRST + at * count);
  const run = async () => {
    const cluster = await HistoryCluster.start(count);
    for (let first = groups.shift(); first !== undefined; first = groups.shift())
      await new Histories(cluster, first, Math.min(count, FIRST + HISTORIES - first)).run();
  };
  await Promise.all(Array.from({ length: CLUSTERS }, run));
  if (HISTORIES >= ENOUGH) expect(cuts.untried).toEqual([]);
});

/** Takes every position of a commit in turn, first those at which none has broken yet. */
const cuts = {
  waiting: Array.from({ length: CommitCut.POSITIONS }, (_, at) => (FIRST + at) % CommitCut.POSITIONS),
  tried: new Set<number>(),
  get untried() {
    return this.waiting.filter((position) => !this.tried.has(position));
  },
  async at(node: HistoryNode) {
    const position = this.waiting.shift() as number;
    node.commitCut.position = position;
    const isCut = () => node.commitCut.position === null;
    const hasCut = await until(isCut, 'a commit', { withinMs: CUT_MS, everyMs: 10 }).then(
      () => true,
      () => false,
    );
    node.commitCut.position = null;
    if (hasCut) {
      this.tried.add(position);
      this.waiting.push(position);
    } else this.waiting.unshift(position);
  },
};

/** A kind of round: what breaks, and for how long. */
type Fault = (histories: Histories, node: HistoryNode) => Promise<void>;

const FAULTS: Record<string, Fault> = {
  none: async (histories) => histories.pause(800),
  databaseCut: async (histories, { database }) => {
    database.cut();
    await histories.pause(600);
  },
  databaseSilent: async (histories, { database }) => {
    database.silence();
    await histories.pauseLongly();
    database.speak();
    database.cut();
  },
  /** The others reach the database, and it: what is revoked through them must not be accepted there. */
  cutOff: async (histories, node) => {
    const { database } = node;
    const answers = histories.random() < 0.5;
    if (answers) await database.refuse();
    else database.silence();
    await histories.revoke(some(histories.others(node), histories.random));
    await histories.pause(1_500);
    if (answers) await database.listen();
    else database.speak();
    database.cut();
  },
  linkCut: async (histories, { link }) => {
    link.cut();
    await histories.pause(400);
  },
  linkRefused: async (histories, { link }) => {
    await link.refuse();
    await histories.pause(1_000);
    await link.listen();
  },
  linkSilent: async (histories, { link }) => {
    link.silence();
    await histories.pause(1_000);
    link.speak();
    link.cut();
  },
  stopped: async (histories, node) => {
    node.stop();
    await histories.pauseLongly();
    node.continue();
  },
  killed: async (histories, node) => {
    await node.kill();
    await histories.pauseLongly();
    await node.restart();
  },
  terminated: async (histories, node) => {
    await node.kill('SIGTERM');
    await histories.hasPrimary();
    await histories.pauseLongly();
    await node.restart();
  },
  copyDamaged: async (histories, node) => {
    await node.kill();
    node.damageCopy();
    node.takeWarnings();
    await node.restart();
    await histories.say(SET_ASIDE, [node]);
  },
  ...(NO_MOUNT === null && {
    diskFull: async (histories: Histories, node: HistoryNode) => {
      // Its log is short then, and has no room of its own.
      await node.kill('SIGTERM');
      await node.restart();
      const free = node.disk?.fill();
      await node.endsItself(DISK_FULL);
      await node.restart();
      await histories.pauseLongly();
      free?.();
      await node.kill('SIGTERM');
      await node.restart();
    },
  }),
  otherSetting: async (histories, node) => {
    const [differing, refusal] = some(DIFFERING, histories.random);
    await node.kill('SIGTERM');
    await histories.refuses(node, differing, refusal);
    await node.restart();
  },
  commitsCut: async (histories) => {
    const cutEach = async (node: HistoryNode) => {
      for (let count = 0; count < CUTS; count += 1) await cuts.at(node);
    };
    await Promise.all(histories.cluster.nodes.map(cutEach));
  },
  locked: async (histories) => {
    const release = await histories.cluster.database.hold(LOCK);
    await histories.pauseLongly();
    await release();
  },
  readOnly: async (histories) => {
    const { database } = histories.cluster;
    await database.setReadOnly(true);
    await histories.pauseLongly();
    await database.setReadOnly(false);
  },
  standby: async (histories) => {
    const { cluster } = histories;
    const { database } = cluster;
    const standby = await database.standby();
    await histories.hasWritten();
    cluster.divert(standby);
    await histories.pauseLongly();
    cluster.divert(database);
    await standby.discard();
  },
  promoted: async (histories) => {
    const { cluster } = histories;
    const copiedFrom = performance.now();
    const standby = await cluster.database.standby();
    await histories.hasWritten();
    histories.becomeVague(copiedFrom);
    for (const node of cluster.nodes) node.takeWarnings();
    cluster.divert(standby);
    await histories.pause(1_500);
    const lost = await cluster.promote(standby);
    await histories.say(LOST);
    await histories.saysLoss(lost);
  },
  clock: async (histories, node) => {
    node.jumpClock({ byMs: histories.random() < 0.5 ? CLOCK_JUMP_MS : -CLOCK_JUMP_MS });
    await histories.pause(800);
  },
  databaseKilled: async (histories) => {
    await histories.cluster.database.kill();
    await histories.pause(800);
    await histories.cluster.database.restart();
  },
  databasePutBack: async (histories) => {
    await histories.settled();
    const copiedFrom = performance.now();
    const putBack = await histories.cluster.snapshot();
    await histories.pause(500);
    histories.becomeVague(copiedFrom);
    await putBack();
  },
  revoked: (histories, node) => histories.revoke(node),
};

/**
 * While these come one after another, the gateways run and reach each other: each of them answers whatever it is asked. After an
 * older state, another one may be the primary node: connections that were being passed on to it can end.
 */
const ANSWERED: ReadonlySet<string> = new Set([
  ...['none', 'databaseKilled', 'commitsCut', 'locked', 'readOnly', 'standby'],
]);

/** Histories at the same gateways: what breaks, breaks for all of them. */
class Histories {
  readonly random: () => number;
  readonly #all: History[];
  readonly #writes = new WritesRecord();
  readonly #log: string[] = [];
  /** When the database was put back to an older state the last time, or its standby promoted. */
  #vagueFrom = 0;

  constructor(
    readonly cluster: HistoryCluster,
    private readonly first: number,
    count: number,
  ) {
    this.random = seeded(first);
    this.#all = Array.from({ length: count }, (_, at) => new History(cluster, first + at, at));
  }

  async run(): Promise<void> {
    let endWrites = async () => {};
    try {
      const [one, other] = [await this.#newCredentials(), await this.#newCredentials()];
      endWrites = this.cluster.beginWrites(this.#writes);
      for (const [at, history] of this.#all.entries()) history.begin([one[at], other[at]] as Credential[]);
      for (let round = 0; round < ROUNDS; round++) {
        const name = some(Object.keys(FAULTS), this.random);
        this.#log.push(name);
        this.#writes.isAnswered = [this.#log.at(-2) ?? 'none', name].every((each) => ANSWERED.has(each));
        const acts = this.#all.flatMap((history) => Array.from({ length: ACTS }, () => history.act()));
        await FAULTS[name]?.(this, some(this.cluster.nodes, this.random));
        await Promise.all(acts);
        await this.hasPrimary();
        if (this.#all.some(({ isVague }) => isVague)) await this.#becomeExact();
        const ended = this.cluster.nodes.flatMap((node) => node.ended);
        expect([...ended, ...this.#writes.violations], this.#what).toEqual([]);
      }
      await endWrites();
      await this.settled();
      this.#writes.agreed(await this.cluster.written());
      expect(this.#writes.violations, this.#what).toEqual([]);
      expect(this.#writes.count, this.#what).toBeGreaterThan(0);
      expect(await this.cluster.halves(), this.#what).toEqual([]);
      expect(this.cluster.events.count, this.#what).toBeGreaterThan(0);
      for (const { record } of this.#all) {
        expect(record.violations, this.#what).toEqual([]);
        expect(record.answers, this.#what).toBeGreaterThan(0);
      }
      await this.cluster.forgetWrites();
    } finally {
      for (const history of this.#all) history.end();
      await endWrites();
    }
  }

  get #what(): string {
    return `FIRST_HISTORY=${this.first} HISTORIES=${this.#all.length} (${this.#log.join(', ')})`;
  }

  pause(maxMs: number): Promise<void> {
    return delay(this.random() * maxMs);
  }

  /** Now and then for so long that others may take the names of a gateway that says nothing. */
  pauseLongly(): Promise<void> {
    return this.random() < 0.2 ? delay(PERIODS.expiredMs + 500) : this.pause(1_500);
  }

  others(node: HistoryNode): readonly HistoryNode[] {
    return this.cluster.nodes.filter((each) => each !== node);
  }

  /** Waits until each name is served at all gateways for the agents that have it, and for nobody else. */
  async settled(): Promise<void> {
    this.#writes.isPaused = true;
    await this.cluster.settled(this.#what);
    await Promise.all(this.#all.map((history) => history.settled(this.#what)));
    this.#writes.isPaused = false;
  }

  /** Waits until one of the gateways that run is primary. */
  hasPrimary(): Promise<void> {
    return this.cluster.hasPrimary(this.#what);
  }

  /** Starts a gateway with settings that differ, which it has to refuse. */
  async refuses(node: HistoryNode, differing: Partial<GatewayOptions>, refusal: string): Promise<void> {
    expect(await node.refusal(differing), this.#what).toContain(refusal);
  }

  /** Waits until something is written, and all gateways have it. */
  async hasWritten(): Promise<void> {
    const before = this.#writes.count;
    await until(() => this.#writes.count > before, `${this.#what}: a write`, { everyMs: 20 });
    await this.settled();
  }

  /** Waits until gateways have said something in their logs. */
  async say(message: string, nodes = this.cluster.nodes): Promise<void> {
    for (const node of nodes)
      await until(() => node.takeWarnings().includes(message), `${this.#what}: "${message}" of gateway ${node.name}`);
  }

  /** Waits until it is said which commits were lost. */
  async saysLoss(lost: Parameters<HistoryCluster['saysLoss']>[0]): Promise<void> {
    await this.cluster.saysLoss(lost, this.#what);
  }

  /** From now on, names may be lost until all agree again, and what was written from a moment on. */
  becomeVague(from: number): void {
    this.#writes.mayLoseFrom(from);
    this.#vagueFrom = performance.now();
    for (const { record } of this.#all) record.exactFrom = Number.POSITIVE_INFINITY;
  }

  /** What agents were told before may have been lost with the commits. */
  async #becomeExact(): Promise<void> {
    await this.settled();
    this.#writes.agreed(await this.cluster.written());
    this.#writes.becomeExact();
    expect(await this.cluster.halves(), this.#what).toEqual([]);
    expect(this.cluster.events.repeatedAfter(this.#vagueFrom), this.#what).toEqual([]);
    for (const { record } of this.#all) record.exactFrom = performance.now();
  }

  async revoke(node: HistoryNode): Promise<void> {
    await this.settled();
    const credentials = await this.#newCredentials();
    const revoked = this.#all.map((history, at) => history.revoke(node, credentials[at] as Credential));
    for (const result of await Promise.all(revoked)) expect(result, this.#what).toEqual({ status: 204, accepts: [] });
  }

  #newCredentials(): Promise<Credential[]> {
    return this.cluster.newCredentials(this.#all.length);
  }
}

/** Agents bind, move and leave at random, and clients ask, while things break; afterwards all agree. */
class History {
  readonly record = new ServingRecord();
  readonly #random: () => number;
  readonly #names: readonly string[];
  readonly #clients: readonly PublicClient[];
  #agents: HistoryAgent[] = [];
  #credentials: Credential[] = [];
  #asking = 0;
  #asks: NodeJS.Timeout | undefined;

  constructor(
    private readonly cluster: HistoryCluster,
    seed: number,
    place: number,
  ) {
    this.#random = seeded(seed);
    this.#names = NAMES.map((name) => `${name}${place}.localhost`);
    this.#clients = cluster.clients[place] ?? [];
  }

  begin(credentials: Credential[]): void {
    this.#credentials = credentials;
    this.#asks = setInterval(() => void this.#ask(), ASK_EVERY_MS);
  }

  end(): void {
    clearInterval(this.#asks);
    for (const agent of this.#agents) agent.leave();
  }

  get isVague(): boolean {
    return !Number.isFinite(this.record.exactFrom);
  }

  async settled(what: string): Promise<void> {
    for (const name of this.#names) {
      let state: object = {};
      const isAgreed = async () => {
        const answers = await Promise.all(this.#clients.map((client) => client.get(name)));
        const served = answers.map((answer) => answer && HistoryAgent.tenure(answer));
        const current = this.record.current(name);
        state = { now: performance.now(), served, current };
        if (new Set(current.map(({ credential }) => credential)).size > 1) return false;
        return served.every((tenure) => (tenure ? current.includes(tenure) : current.length === 0));
      };
      await until(isAgreed, name, { everyMs: 100 }).catch((cause: unknown) => {
        throw new Error(`${what}: gateways and agents do not agree: ${JSON.stringify(state)}`, { cause });
      });
    }
  }

  /**
   * Revokes one of its authtokens.
   *
   * @param next takes its place
   * @returns the status of the answer, and the gateways that still accept it
   */
  async revoke(node: HistoryNode, next: Credential): Promise<{ status: number | null; accepts: readonly string[] }> {
    const at = this.#random() < 0.5 ? 0 : 1;
    const credential = this.#credentials[at] as Credential;
    this.#credentials[at] = next;
    const status = await this.cluster.revoke(credential, node);
    this.record.revoked(credential.id);
    const tried = this.cluster.nodes.map(async (each) => {
      const agent = await HistoryAgent.open(each, credential, this.record);
      agent?.leave();
      return agent ? [each.name] : [];
    });
    return { status, accepts: (await Promise.all(tried)).flat() };
  }

  /** An agent opens a session, binds a name, gives one up, or leaves. */
  async act(): Promise<void> {
    await delay(this.#random() * 500);
    this.#agents = this.#agents.filter(({ isOpen }) => isOpen);
    const name = this.#some(this.#names);
    const chance = this.#random();
    if (this.#agents.length < 3 || chance < 0.2) return this.#join(name);
    const agent = this.#some(this.#agents);
    if (chance < 0.3) agent.leave();
    else if (chance < 0.55) agent.unbind(name);
    else await agent.bind(name);
  }

  async #join(name: string): Promise<void> {
    const credential = this.#some(this.#credentials);
    const own = this.#agents.filter((agent) => agent.credential === credential);
    // Some agents have two sessions, and some come back at another gateway.
    const chance = this.#random();
    const as = own.length > 0 && chance < 0.6 ? { id: this.#some(own).id, number: chance < 0.3 ? 1 : 0 } : undefined;
    const agent = await HistoryAgent.open(this.#some(this.cluster.nodes), credential, this.record, as);
    if (agent === null) return;
    this.#agents.push(agent);
    await agent.bind(name);
  }

  /** A client asks for a name at a gateway, which may be stopped. */
  async #ask(): Promise<void> {
    if (this.#asking > MAX_ASKING) return;
    this.#asking += 1;
    const at = Math.floor(Math.random() * this.#clients.length);
    const client = this.#clients[at];
    const beganAt = performance.now();
    const answer = await client?.get(some(this.#names, Math.random));
    if (answer) this.record.answered(HistoryAgent.tenure(answer), beganAt, `${at}`);
    // Most connections are used again.
    if (Math.random() < 0.01) client?.close();
    this.#asking -= 1;
  }

  #some<T>(all: readonly T[]): T {
    return some(all, this.#random);
  }
}

function some<T>(all: readonly T[], random: () => number): T {
  return all[Math.floor(random() * all.length)] as T;
}
