import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { NO_POSTGRES } from '../../../support/postgres-server.ts';
import { unless } from '../../../support/requirements.ts';
import { seeded } from '../../../support/seeded.ts';
import { until } from '../../../support/until.ts';
import { type Credential, HistoryAgent } from './history-agent.ts';
import { HistoryCluster } from './history-cluster.ts';
import { type HistoryNode, PERIODS } from './history-node.ts';
import { ServingRecord } from './serving-record.ts';

const NAMES = ['a.localhost', 'b.localhost', 'c.localhost'];
/** More than a few begin with a random one. */
const HISTORIES = Number(process.env.HISTORIES ?? 4);
const FIRST = process.env.HISTORIES === undefined ? 1 : Math.floor(Math.random() * 1_000_000);
const CLUSTERS = HISTORIES > 8 ? 4 : 2;
const ROUNDS = 12;
const ACTS = 6;
const ASK_EVERY_MS = 25;
const MAX_ASKING = 60;
/** More than the longest period by which gateways rely on each other. */
const CLOCK_JUMP_MS = 7_200_000;

it(`no name is served for two authtokens, whatever breaks, and none that was bound is lost (${HISTORIES} histories)`, {
  timeout: 60_000 + 60_000 * HISTORIES,
  ...unless(NO_POSTGRES),
}, async () => {
  const run = async (first: number) => {
    const cluster = await HistoryCluster.start();
    for (let at = first; at < HISTORIES; at += CLUSTERS) await new History(cluster, FIRST + at).run();
  };
  await Promise.all(Array.from({ length: Math.min(CLUSTERS, HISTORIES) }, (_, first) => run(first)));
});

/** A kind of round: what breaks, and for how long. */
type Fault = (history: History, node: HistoryNode) => Promise<void>;

const FAULTS: Record<string, Fault> = {
  none: async (history) => history.pause(800),
  databaseCut: async (history, { database }) => {
    database.cut();
    await history.pause(600);
  },
  databaseSilent: async (history, { database }) => {
    database.silence();
    await history.pauseLongly();
    database.speak();
    database.cut();
  },
  linkCut: async (history, { link }) => {
    link.cut();
    await history.pause(400);
  },
  linkRefused: async (history, { link }) => {
    await link.refuse();
    await history.pause(1_000);
    await link.listen();
  },
  linkSilent: async (history, { link }) => {
    link.silence();
    await history.pause(1_000);
    link.speak();
    link.cut();
  },
  stopped: async (history, node) => {
    node.stop();
    await history.pauseLongly();
    node.continue();
  },
  killed: async (history, node) => {
    await node.kill();
    await history.pauseLongly();
    await node.restart();
  },
  clock: async (history, node) => {
    node.jumpClock({ byMs: history.random() < 0.5 ? CLOCK_JUMP_MS : -CLOCK_JUMP_MS });
    await history.pause(800);
  },
  databaseKilled: async (history) => {
    await history.cluster.database.kill();
    await history.pause(800);
    await history.cluster.database.restart();
  },
  databasePutBack: async (history) => {
    await history.settled();
    const putBack = await history.cluster.snapshot();
    await history.pause(500);
    history.record.exactFrom = Number.POSITIVE_INFINITY;
    await putBack();
  },
  revoked: (history, node) => history.revoke(node),
};

/** Agents bind, move and leave at random, and clients ask, while things break; afterwards all agree. */
class History {
  readonly random: () => number;
  readonly record = new ServingRecord();
  #agents: HistoryAgent[] = [];
  #credentials: Credential[] = [];
  #asking = 0;
  readonly #log: string[] = [];

  constructor(
    readonly cluster: HistoryCluster,
    private readonly seed: number,
  ) {
    this.random = seeded(seed);
  }

  async run(): Promise<void> {
    const { cluster } = this;
    this.#credentials = [await cluster.newCredential(), await cluster.newCredential()];
    const asking = setInterval(() => void this.#ask(), ASK_EVERY_MS);
    try {
      for (let round = 0; round < ROUNDS; round++) {
        const name = this.#some(Object.keys(FAULTS));
        this.#log.push(name);
        const acts = Array.from({ length: ACTS }, () => this.#act());
        await FAULTS[name]?.(this, this.#some(cluster.nodes));
        await Promise.all(acts);
        if (!Number.isFinite(this.record.exactFrom)) await this.#becomeExact();
      }
      await this.settled();
      expect(this.record.violations, this.#what).toEqual([]);
      expect(this.record.answers, this.#what).toBeGreaterThan(0);
    } finally {
      clearInterval(asking);
      for (const agent of this.#agents) agent.leave();
    }
  }

  get #what(): string {
    return `history ${this.seed} (${this.#log.join(', ')})`;
  }

  pause(maxMs: number): Promise<void> {
    return delay(this.random() * maxMs);
  }

  /** Now and then for so long that others may take the names of a gateway that says nothing. */
  pauseLongly(): Promise<void> {
    return this.random() < 0.2 ? delay(PERIODS.expiredMs + 500) : this.pause(1_500);
  }

  /** Waits until each name is served at all gateways for the agents that have it, and for nobody else. */
  async settled(): Promise<void> {
    await this.cluster.settled(this.#what);
    for (const name of NAMES) {
      let state: object = {};
      const isAgreed = async () => {
        const answers = await Promise.all(this.cluster.clients.map((client) => client.get(name)));
        const served = answers.map((answer) => answer && HistoryAgent.tenure(answer));
        const current = this.record.current(name);
        state = { now: performance.now(), served, current };
        if (new Set(current.map(({ credential }) => credential)).size > 1) return false;
        return served.every((tenure) => (tenure ? current.includes(tenure) : current.length === 0));
      };
      await until(isAgreed, name, { everyMs: 100 }).catch((cause: unknown) => {
        throw new Error(`${this.#what}: gateways and agents do not agree: ${JSON.stringify(state)}`, { cause });
      });
    }
  }

  /** What agents were told before may have been lost with the commits. */
  async #becomeExact(): Promise<void> {
    await this.settled();
    this.record.exactFrom = performance.now();
  }

  async revoke(node: HistoryNode): Promise<void> {
    await this.settled();
    const at = this.random() < 0.5 ? 0 : 1;
    const credential = this.#credentials[at] as Credential;
    this.#credentials[at] = await this.cluster.newCredential();
    expect(await this.cluster.revoke(credential, node), this.#what).toBe(204);
    this.record.revoked(credential.id);
  }

  /** An agent opens a session, binds a name, gives one up, or leaves. */
  async #act(): Promise<void> {
    await this.pause(500);
    this.#agents = this.#agents.filter(({ isOpen }) => isOpen);
    const name = this.#some(NAMES);
    const chance = this.random();
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
    const chance = this.random();
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
    const at = Math.floor(Math.random() * this.cluster.clients.length);
    const client = this.cluster.clients[at];
    const beganAt = performance.now();
    const answer = await client?.get(this.#some(NAMES));
    if (answer) this.record.answered(HistoryAgent.tenure(answer), beganAt, `${at}`);
    // Most connections are used again.
    if (Math.random() < 0.01) client?.close();
    this.#asking -= 1;
  }

  #some<T>(all: readonly T[]): T {
    return all[Math.floor(this.random() * all.length)] as T;
  }
}
