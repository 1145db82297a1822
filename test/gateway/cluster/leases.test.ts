import { randomUUID } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { RpcError } from '../../../src/agent-protocol/rpc.ts';
import { Cluster } from '../../../src/gateway/cluster/cluster.ts';
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts';
import type { LiveEndpoint } from '../../../src/gateway/endpoints/live-view.ts';
import { openForChanges } from '../../../src/gateway/store/open-gateway-store.ts';
import type { Store } from '../../../src/gateway/store/store.ts';
import { FlakyProxy } from '../../support/flaky-proxy.ts';
import { nothingOnline } from '../../support/nothing-online.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
/** Short, so that histories have expiries; the margin is longer than a busy machine pauses. */
const PERIODS = { renewMs: 100, silentMs: 900, expiredMs: 4_000, marginMs: 1_500 };
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
}

/** A gateway of the cluster without its edge and its agents. */
class Member {
  readonly #online = new Map<string, LiveEndpoint>();

  private constructor(
    readonly name: string,
    private readonly cluster: Cluster,
    private readonly store: Store,
    private readonly served: Served,
    readonly end: () => Promise<void>,
  ) {}

  static async start(name: string, databaseUrl: string, served: Served): Promise<Member> {
    const location = { dataDir: temporaryFolder(), encryptionKey: KEY, databaseUrl };
    const { store, shared, close } = await openForChanges(location, { older: 'upgrade', log: silentLog });
    if (shared === null) throw new Error('it has no shared database');
    const endpoints = new EndpointRegistry();
    const ports = { httpPort: 0, httpsPort: 0, sessionPort: null };
    const options = { ...location, ...ports, domain: 'localhost', host: '127.0.0.1', log: silentLog };
    mkdirSync(join(location.dataDir, 'gateway'), { recursive: true });
    const cluster = new Cluster(
      { options: { ...options, periods: PERIODS }, store, endpoints, log: silentLog },
      shared,
    );
    const onNodes = (...nodes: Parameters<typeof cluster.update>) => cluster.update(...nodes);
    const self = { address: `${name}.test:443`, alone: false, build: 'test' };
    await shared.serve(self, { onRemoved: () => {}, onNodes }, PERIODS.renewMs);
    let isOpen = true;
    const end = async () => {
      if (isOpen) {
        isOpen = false;
        for (const id of [...member.#online.keys()]) member.#off(id);
        await cluster.stop();
        await close();
      }
    };
    const member = new Member(name, cluster, store, served, end);
    const sessions = Object.assign(new EventEmitter(), { drain: () => {}, count: 0, move: () => 0 });
    const live = { ...nothingOnline, endpoints: () => [...member.#online.values()] };
    cluster.start({ ...live, stopEndpoint: (id) => member.#off(id) }, sessions);
    onTestFinished(end);
    return member;
  }

  /** @returns whether it was bound */
  async bind(host: string, credential: string, agent: string): Promise<boolean> {
    const { leases } = this.cluster;
    if ([...this.#online.values()].some((each) => each.host === host)) return false;
    const endpoint = endpointOf(host, credential, agent);
    try {
      await leases.take(endpoint);
    } catch (error) {
      if (error instanceof RpcError) return false;
      throw error;
    }
    // Nobody else has bound it here meanwhile, as the gateway checks.
    const isFree = ![...this.#online.values()].some((each) => each.host === host);
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

  /** Stores a command for an agent at another member. */
  async command({ cluster }: Member): Promise<void> {
    const insert = "INSERT INTO agent_commands (id, node, session_id, command) VALUES ('c', ?, 'ts_1', 'stop')";
    await this.store.database.write(() => this.store.database.run(insert, [cluster.nodes.self]));
  }

  get commands(): number {
    return Number(this.store.database.values('SELECT COUNT(*) FROM agent_commands', [])?.[0]);
  }

  #off(id: string): void {
    const endpoint = this.#online.get(id);
    if (!endpoint) return;
    this.#online.delete(id);
    this.served.remove(endpoint.host, this.name);
  }
}

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

it(
  'commands for agents of a gateway that has gone are forgotten with what was online there',
  unless(NO_POSTGRES),
  async () => {
    const url = await newDatabase();
    const proxy = await FlakyProxy.start(server.address);
    onTestFinished(() => proxy.close());
    const other = await Member.start('other', url(), new Served());
    const lost = await Member.start('lost', url(proxy.address), new Served());
    await lost.bind('a.localhost', 'cr_one', 'ts_1');
    await until(() => other.elsewhere('a.localhost'), 'the name is known', { everyMs: 20 });
    proxy.silence();
    await other.command(lost);
    expect(other.commands).toBe(1);
    await until(() => !other.elsewhere('a.localhost'), 'the lost one is forgotten', { everyMs: 50 });
    expect(other.commands).toBe(0);
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
