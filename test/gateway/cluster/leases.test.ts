import { randomUUID } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { RpcError } from '../../../src/agent-protocol/rpc.ts';
import { Cluster } from '../../../src/gateway/cluster/cluster.ts';
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts';
import { type LiveEndpoint, nothingOnline } from '../../../src/gateway/endpoints/live-view.ts';
import { openForChanges } from '../../../src/gateway/store/open-gateway-store.ts';
import { FlakyProxy } from '../../support/flaky-proxy.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { seeded } from '../../support/seeded.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
/** Short, so that histories have expiries; the margin is longer than a busy machine pauses. */
const PERIODS = { silentMs: 900, expiredMs: 4_000, marginMs: 1_500 };
const RENEW_MS = 100;
let server: PostgresServer;

beforeAll(async () => {
  if (NO_POSTGRES === null) server = await PostgresServer.start();
});
afterAll(() => server?.end());

/** Who serves each name, over all nodes: what probing clients would be served by. */
class Served {
  readonly #by = new Map<string, { node: string; credential: string }[]>();
  readonly violations: string[] = [];

  add(name: string, node: string, credential: string): void {
    const others = this.#by.get(name) ?? [];
    const strangers = others.filter((each) => each.credential !== credential);
    if (strangers.length > 0)
      this.violations.push(`${name}: ${credential} at ${node} beside ${JSON.stringify(strangers)}`);
    this.#by.set(name, [...others, { node, credential }]);
  }

  remove(name: string, node: string): void {
    this.#by.set(
      name,
      (this.#by.get(name) ?? []).filter((each) => each.node !== node),
    );
  }

  nodesOf(name: string): string[] {
    return (this.#by.get(name) ?? []).map(({ node }) => node);
  }
}

/** A gateway of the cluster without its edge and its agents. */
class Member {
  readonly #online = new Map<string, LiveEndpoint>();
  #isDead = false;

  private constructor(
    readonly name: string,
    private readonly cluster: Cluster,
    private readonly served: Served,
    /** Of its copy of the database with all changes; null: that cannot be reached. */
    readonly digest: () => Promise<string | null>,
    readonly end: () => Promise<void>,
    /** As kill -9: it serves nothing from now on, and tells nobody. The database must be out of its reach. */
    readonly crash: () => Promise<void>,
  ) {}

  static async start(name: string, databaseUrl: string, served: Served, dataDir = temporaryFolder()): Promise<Member> {
    const location = { dataDir, encryptionKey: KEY, databaseUrl };
    const { store, shared, close } = await openForChanges(location, { older: 'upgrade', log: silentLog });
    if (shared === null) throw new Error('it has no shared database');
    const endpoints = new EndpointRegistry();
    const cluster = new Cluster({ store, shared, endpoints, periods: PERIODS, log: silentLog });
    const onNodes = (...nodes: Parameters<typeof cluster.update>) => cluster.update(...nodes);
    const self = { address: '127.0.0.1:1', alone: false, build: 'test' };
    await shared.serve(self, { onRemoved: () => {}, onNodes }, RENEW_MS);
    let isOpen = true;
    const end = async () => {
      if (isOpen) {
        isOpen = false;
        for (const id of [...member.#online.keys()]) member.#off(id);
        await cluster.stop();
        await close();
      }
    };
    const crash = async () => {
      isOpen = false;
      for (const id of [...member.#online.keys()]) member.#off(id);
      member.#isDead = true;
      cluster.leases.begin(nothingHere);
      await Promise.allSettled([cluster.stop(), close()]);
    };
    const digest = () =>
      shared.refresh().then(
        () => shared.digest(),
        () => null,
      );
    const member = new Member(name, cluster, served, digest, end, crash);
    const sessions = Object.assign(new EventEmitter(), { drain: () => {} });
    const live = { ...nothingOnline, endpoints: () => [...member.#online.values()] };
    cluster.start({ ...live, stopEndpoint: (id) => member.#off(id) }, sessions);
    onTestFinished(end);
    return member;
  }

  /** @returns whether it was bound */
  async bind(host: string, credential: string, agent: string, connectionNumber = 0): Promise<boolean> {
    const { leases } = this.cluster;
    if ([...this.#online.values()].some((each) => each.host === host)) return false;
    const endpoint = { ...endpointOf(host, credential, agent), connectionNumber };
    try {
      await leases.take(endpoint);
    } catch (error) {
      if (error instanceof RpcError || this.#isDead) return false;
      throw error;
    }
    // Nobody else has bound it here meanwhile, as the gateway checks.
    const isFree = !this.#isDead && ![...this.#online.values()].some((each) => each.host === host);
    if (isFree) {
      this.#online.set(endpoint.id, endpoint);
      this.served.add(host, this.name, credential);
    }
    leases.settle(endpoint.id);
    return isFree;
  }

  unbind(host: string): void {
    for (const [id, endpoint] of this.#online) if (endpoint.host === host) this.#off(id);
    this.cluster.leases.syncSoon();
  }

  get hosts(): string[] {
    return [...this.#online.values()].map(({ host }) => host);
  }

  /** Names that this member believes to be at others. */
  elsewhere(host: string): boolean {
    return [...this.cluster.rows.atName('tls', host)].length > 0;
  }

  #off(id: string): void {
    const endpoint = this.#online.get(id);
    if (!endpoint) return;
    this.#online.delete(id);
    this.served.remove(endpoint.host, this.name);
  }
}

const nothingHere = { ...nothingOnline, stopEndpoint: () => {} };

function endpointOf(host: string, credentialId: string, sessionId: string): LiveEndpoint {
  const id = `ep_${randomUUID()}`;
  const texts = { createdAt: '', updatedAt: '', metadata: '', description: '', name: '' };
  const address = { proto: 'https', host, port: 443, url: `https://${host}`, internal: false };
  const owner = { credentialId, sessionId, ownerId: null, edgeId: null, tunnelId: null, upstreamUrl: null };
  return { id, type: 'ephemeral', ...address, ...texts, ...owner, poolingEnabled: false, traffic: null };
}

async function newDatabase(): Promise<(address?: string) => string> {
  const name = `t_${randomUUID().replaceAll('-', '')}`;
  await server.query(`CREATE DATABASE ${name}`);
  return (address) => server.url(address).replace(/postgres$/, name);
}

const HOSTS = ['a.localhost', 'b.localhost', 'c.localhost'];
const TOKENS = ['cr_one', 'cr_two'];
const FAULTS = ['none', 'none', 'cut', 'silence', 'silence', 'crash'] as const;
/** More than a few begin with a random one. */
const HISTORIES = Number(process.env.HISTORIES ?? 4);
const AT_ONCE = 4;
const ROUNDS = 12;
const FIRST = process.env.HISTORIES === undefined ? 1 : Math.floor(Math.random() * 1_000_000);

it(`agents bind, move and leave at three gateways while connections break: no name has two authtokens (${HISTORIES} histories)`, {
  timeout: 60_000 + 30_000 * HISTORIES,
  ...unless(NO_POSTGRES),
}, async () => {
  for (let count = 0; count < HISTORIES; count += AT_ONCE) {
    const seeds = Array.from({ length: Math.min(AT_ONCE, HISTORIES - count) }, (_, at) => FIRST + count + at);
    const begun: Promise<void>[] = [];
    const running = seeds.map((seed) => {
      let begin = () => {};
      begun.push(new Promise((resolve) => (begin = resolve)));
      return history(seed, begin);
    });
    // In the middle of all of them.
    const restart = () =>
      Promise.all(begun)
        .then(() => delay(1_000))
        .then(() => server.restart());
    await Promise.all([...running, count > 0 && restart()]);
  }
});

/** @param onBegin called when its gateways have started, which the first time needs the database */
async function history(seed: number, onBegin: () => void): Promise<void> {
  const random = seeded(seed);
  const some = <T>(all: readonly T[]) => all[Math.floor(random() * all.length)] as T;
  const url = await newDatabase();
  const served = new Served();
  const proxies = await Promise.all([0, 1, 2].map(() => FlakyProxy.start(server.address)));
  onTestFinished(() => Promise.all(proxies.map((proxy) => proxy.close())).then(() => {}));
  const members: Member[] = [];
  const folders = proxies.map(() => temporaryFolder());
  const start = (at: number) => Member.start(`${at}`, url(proxies[at]?.address), served, folders[at]);
  for (const at of proxies.keys()) members.push(await start(at));
  onBegin();
  for (let round = 0; round < ROUNDS; round++) {
    const at = Math.floor(random() * proxies.length);
    const proxy = proxies[at] as FlakyProxy;
    const fault = some(FAULTS);
    if (fault === 'cut') proxy.cut();
    if (fault === 'silence') proxy.silence();
    const acts = Array.from({ length: 6 }, async () => {
      const [member, host, token] = [some(members), some(HOSTS), some(TOKENS)];
      if (random() < 0.35) return member.unbind(host);
      // Some agents have two sessions.
      const [agent, connection] = [Math.floor(random() * 2), random() < 0.3 ? 1 : 0];
      await member.bind(host, token, `ts_${token}${agent}`, connection);
    });
    await Promise.race([Promise.all(acts), delay(random() * 1_500)]);
    if (fault === 'silence') {
      // Now and then for so long that others may take its names.
      await delay(random() < 0.3 ? PERIODS.expiredMs + 500 : random() * 600);
      proxy.speak();
      proxy.cut();
    }
    if (fault === 'crash') {
      await proxy.refuse();
      await members[at]?.crash();
    }
    await Promise.all(acts);
    if (fault === 'crash') {
      await proxy.listen();
      members[at] = await start(at);
    }
  }
  const settled = async () => {
    const digests = await Promise.all(members.map((each) => each.digest()));
    return new Set(digests).size === 1 && digests[0] !== null;
  };
  await until(settled, `history ${seed}: equal copies`, { everyMs: 50 });
  // Whoever is online has its name, and everybody else knows.
  const agree = () =>
    members.every((each) =>
      HOSTS.every((host) => served.nodesOf(host).some((name) => name !== each.name) === each.elsewhere(host)),
    );
  await until(agree, `history ${seed}: all know who serves what`, { everyMs: 50 });
  expect(served.violations, `history ${seed}`).toEqual([]);
  await Promise.all([...members.map((each) => each.end()), ...proxies.map((proxy) => proxy.close())]);
}

it(
  'while the database is away, an agent comes back to its names, and nobody gets a new one',
  unless(NO_POSTGRES),
  async () => {
    const url = await newDatabase();
    const proxy = await FlakyProxy.start(server.address);
    onTestFinished(() => proxy.close());
    const member = await Member.start('0', url(proxy.address), new Served());
    expect(await member.bind('a.localhost', 'cr_one', 'ts_1')).toBe(true);
    await delay(300);
    await proxy.refuse();
    proxy.cut();
    member.unbind('a.localhost');
    expect(await member.bind('b.localhost', 'cr_one', 'ts_1')).toBe(false);
    expect(await member.bind('a.localhost', 'cr_two', 'ts_2')).toBe(false);
    expect(await member.bind('a.localhost', 'cr_one', 'ts_1')).toBe(true);
    // By its own clock, before others may take it.
    await until(() => member.hosts.length === 0, 'it gives its names up', { everyMs: 20 });
    expect(await member.bind('a.localhost', 'cr_one', 'ts_1')).toBe(false);
    await proxy.listen();
    await until(() => member.bind('a.localhost', 'cr_one', 'ts_1'), 'the database is back', { everyMs: 50 });
  },
);

it(
  'an authtoken takes its names from a gateway that is silent, and others do not until that one agrees',
  unless(NO_POSTGRES),
  async () => {
    const url = await newDatabase();
    const served = new Served();
    const proxy = await FlakyProxy.start(server.address);
    onTestFinished(() => proxy.close());
    const lost = await Member.start('lost', url(proxy.address), served);
    const other = await Member.start('other', url(), served);
    await lost.bind('a.localhost', 'cr_one', 'ts_1');
    expect(await other.bind('a.localhost', 'cr_one', 'ts_2')).toBe(false);
    proxy.silence();
    await until(() => other.bind('a.localhost', 'cr_one', 'ts_2'), 'it is taken', { everyMs: 50 });
    other.unbind('a.localhost');
    expect(await other.bind('a.localhost', 'cr_two', 'ts_3')).toBe(false);
    proxy.speak();
    proxy.cut();
    await until(() => other.bind('a.localhost', 'cr_two', 'ts_3'), 'the lost one has given it up', { everyMs: 50 });
    expect([lost.hosts, served.violations]).toEqual([[], []]);
  },
);

it('an agent that moves has its names at the new gateway at once', unless(NO_POSTGRES), async () => {
  const url = await newDatabase();
  const served = new Served();
  const [one, two] = [await Member.start('one', url(), served), await Member.start('two', url(), served)];
  await one.bind('a.localhost', 'cr_one', 'ts_1');
  expect(await two.bind('a.localhost', 'cr_two', 'ts_1')).toBe(false);
  expect(await two.bind('a.localhost', 'cr_one', 'ts_1')).toBe(true);
  await until(() => one.hosts.length === 0, 'the old one stops', { everyMs: 20 });
  await two.end();
  await until(() => one.bind('a.localhost', 'cr_two', 'ts_9'), 'a name of a gateway that has left', { everyMs: 50 });
});

it(
  'a database that was put back to an older state gets the names that are online again',
  unless(NO_POSTGRES),
  async () => {
    const url = await newDatabase();
    const one = await Member.start('one', url(), new Served());
    const client = new URL(url()).pathname.slice(1);
    const tables = ['cluster', 'rows', 'commits'];
    for (const table of tables) await server.query(`CREATE TABLE old_${table} AS TABLE device_agent.${table}`, client);
    await one.bind('a.localhost', 'cr_one', 'ts_1');
    await server.query(
      `BEGIN; ${tables.map((t) => `DELETE FROM device_agent.${t}; INSERT INTO device_agent.${t} SELECT * FROM old_${t};`).join(' ')} COMMIT`,
      client,
    );
    const two = await Member.start('two', url(), new Served());
    await until(() => two.elsewhere('a.localhost'), 'the lease is there again', { everyMs: 50 });
    expect(await two.bind('a.localhost', 'cr_two', 'ts_2')).toBe(false);
    expect(one.hosts).toEqual(['a.localhost']);
  },
);
