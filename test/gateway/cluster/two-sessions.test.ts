import { cpSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { type RequestOptions, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import type { PublicClient } from '../../faults/public-client.ts';
import { CLI } from '../../support/agent-process.ts';
import { ClusterProcesses } from '../../support/cluster-processes.ts';
import { NO_POSTGRES } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const NAME = 'camera.localhost';
const PAUSE_MS = 20;

/** Clients of some gateways ask without a pause. */
class SteadyClients {
  asked = 0;
  /** When requests began that got no answer, in milliseconds of `performance.now()`. */
  readonly failed: number[] = [];
  slowestMs = 0;
  #isOver = false;
  readonly #running: Promise<unknown>;

  constructor(clients: readonly PublicClient[]) {
    this.#running = Promise.all(clients.map((client) => this.#ask(client)));
  }

  async #ask(client: PublicClient): Promise<void> {
    while (!this.#isOver) {
      const began = performance.now();
      if ((await client.get(NAME)) !== 'seen') this.failed.push(began);
      this.asked += 1;
      this.slowestMs = Math.max(this.slowestMs, performance.now() - began);
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#running;
  }
}

it('a device with the native connector has sessions at two gateways, and the loss of either costs no request', {
  timeout: 240_000,
  ...unless(NO_POSTGRES),
}, async () => {
  const cluster = await ClusterProcesses.start(3);
  const device = await cluster.startDevice(NAME, 'native');
  const clients = cluster.clients();
  const isSettled = async (but?: number) => {
    const nodes = (await cluster.nodes()).filter((node) => cluster.placeOf(node) !== but);
    return nodes.filter(({ sessions, endpoints }) => sessions === 1 && endpoints === 1).length === 2;
  };
  const served = async () =>
    (await Promise.all(clients.map((client) => client.get(NAME)))).every((it) => it === 'seen');
  await until(() => isSettled(), 'two sessions', { everyMs: 100, withinMs: 90_000 });
  await until(served, 'the device by all gateways', { everyMs: 100 });

  const { session } = (await (await fetch(`${await device.api()}/status`)).json()) as { session: object };
  const nodes = cluster.gateways.map(({ httpsPort }) => `127.0.0.1:${httpsPort}`);
  expect(session).toMatchObject({ state: 'online', second_gateway: expect.toBeOneOf(nodes) });

  const killed = Number((await cluster.serving())[0]);
  const others = new SteadyClients(clients.filter((_, at) => at !== killed));
  await cluster.gateways[killed]?.kill();
  const killedAt = performance.now();
  await until(() => isSettled(killed), 'two sessions at the gateways that are left', {
    everyMs: 100,
    withinMs: 90_000,
  });
  await others.end();
  expect(others.failed.filter((began) => began > killedAt)).toEqual([]);
  await cluster.gateways[killed]?.restart();
  await until(served, 'the device by all gateways', { everyMs: 100 });

  const [emptied] = (await cluster.nodes()).filter(({ sessions }) => sessions > 0);
  if (!emptied) throw new Error('no gateway has a session');
  const emptiedAt = cluster.placeOf(emptied);
  const all = new SteadyClients(clients);
  const { code, stderr } = await cluster.command('drain', emptied.id);
  expect(code, stderr).toBe(0);
  await until(() => isSettled(emptiedAt), 'two sessions at the gateways that stay', { everyMs: 100, withinMs: 90_000 });
  await all.end();
  expect(all.failed).toEqual([]);

  const staying = new SteadyClients(clients.filter((_, at) => at !== emptiedAt));
  await cluster.gateways[emptiedAt]?.stop();
  await cluster.gateways[emptiedAt]?.restart();
  await until(served, 'the device by all gateways', { everyMs: 100 });
  await staying.end();
  expect(staying.failed).toEqual([]);
  expect(all.asked).toBeGreaterThan(100);
});

it('gateways are upgraded to a version that adds to the database, one after another, and no request fails', {
  timeout: 240_000,
  ...unless(NO_POSTGRES),
}, async () => {
  const cluster = await ClusterProcesses.start(3);
  const device = await cluster.startDevice(NAME, 'native');
  const api = await device.api();
  const clients = cluster.clients();
  await until(async () => (await cluster.serving()).length === 2, 'two sessions', { everyMs: 100, withinMs: 90_000 });
  await until(async () => (await clients[0]?.get(NAME)) === 'seen', 'the device', { everyMs: 100 });
  const cli = nextVersion();
  for (let at = 0; at < 3; at++) {
    const others = new SteadyClients(clients.filter((_, each) => each !== at));
    const tunnels = new NewTunnels(api);
    await cluster.upgrade(at, cli);
    await until(async () => (await cluster.serving()).length === 2, 'two sessions', { everyMs: 100, withinMs: 90_000 });
    await Promise.all([others.end(), tunnels.end()]);
    expect([others.failed, tunnels.refused]).toEqual([[], []]);
    expect(tunnels.names.length).toBeGreaterThan(0);
    for (const name of tunnels.names)
      for (const client of clients) await until(async () => (await client.get(name)) === 'seen', name, { everyMs: 50 });
  }
  const doctor = await cluster.command('doctor', '--json');
  expect(doctor.stdout).toContain('is the same');
});

it('a gateway that is stopped keeps no client of the others waiting, and repeats nothing when it wakes', {
  timeout: 240_000,
  ...unless(NO_POSTGRES),
}, async () => {
  const cluster = await ClusterProcesses.start(3);
  const requests: string[] = [];
  await cluster.startDevice(NAME, 'native', (target) => void requests.push(target));
  await until(async () => (await cluster.serving()).length === 2, 'two sessions', { everyMs: 100, withinMs: 90_000 });
  const serving = await cluster.serving();
  const outside = cluster.gateways.find((_, at) => !serving.includes(at));
  const stopped = cluster.gateways[serving[0] ?? -1];
  if (!outside || !stopped) throw new Error('not two of three gateways have a session');
  let asked = 0;
  /** Posts by each way to the gateway without a session. @returns how long the slowest took, in milliseconds */
  const post = async () => {
    const began = performance.now();
    const over = (request: typeof requestHttp, to: RequestOptions) => {
      asked += 1;
      const more = {
        host: '127.0.0.1',
        method: 'POST',
        path: `/${asked}`,
        headers: { host: NAME },
        agent: false,
      } as const;
      return new Promise<number | undefined>((resolve, reject) => {
        const req = request({ ...to, ...more }, (res) => resolve(res.resume().statusCode));
        req.on('error', reject).end();
      });
    };
    const secured = (servername: string) =>
      over(requestHttps, { port: outside.httpsPort, servername, rejectUnauthorized: false } as RequestOptions);
    const statuses = await Promise.all([
      over(requestHttp, { port: outside.httpPort }),
      secured(NAME),
      // Decrypted before it is passed on.
      secured('other.localhost'),
    ]);
    expect(statuses).toEqual([308, 200, 200]);
    return performance.now() - began;
  };
  for (let times = 0; times < 5; times++) await post();
  stopped.process.child.kill('SIGSTOP');
  const since = outside.process.lines.length;
  const first = await Promise.all(Array.from({ length: 5 }, post));
  expect(Math.max(...first)).toBeLessThan(3_000);
  for (let times = 0; times < 20; times++) expect(await post()).toBeLessThan(1_000);
  stopped.process.child.kill('SIGCONT');
  await outside.process.logged('other gateway answers again', since);
  for (let times = 0; times < 5; times++) await post();
  expect(requests.toSorted()).toEqual([...new Set(requests)].toSorted());
});

/** A device gets one tunnel after another. */
class NewTunnels {
  static #count = 0;
  readonly names: string[] = [];
  readonly refused: string[] = [];
  #isOver = false;
  readonly #running: Promise<void>;

  constructor(private readonly api: string) {
    this.#running = this.#create();
  }

  async #create(): Promise<void> {
    const [first] = (await (await fetch(`${this.api}/tunnels`)).json()) as { forwards_to: string }[];
    while (!this.#isOver) {
      NewTunnels.#count += 1;
      const domain = `t${NewTunnels.#count}.localhost`;
      const body = JSON.stringify({ domain, forwards_to: first?.forwards_to });
      const headers = { 'content-type': 'application/json' };
      const res = await fetch(`${this.api}/tunnels`, { method: 'POST', headers, body });
      if (res.ok) this.names.push(domain);
      else this.refused.push(`${res.status} ${await res.text()}`);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#running;
  }
}

/** The program with one more migration, which adds a column and a table. @returns its path */
function nextVersion(): string {
  const folder = temporaryFolder();
  const root = dirname(dirname(CLI));
  for (const each of ['node_modules', 'package.json']) symlinkSync(join(root, each), join(folder, each));
  cpSync(join(root, 'dist'), join(folder, 'dist'), { recursive: true });
  // The end of the list of migrations.
  const last = /(;\s+`)(\s*\];)/;
  const more =
    'ALTER TABLE devices ADD COLUMN colour TEXT; CREATE TABLE colours (name TEXT PRIMARY KEY NOT NULL) STRICT, WITHOUT ROWID;';
  const files = readdirSync(join(folder, 'dist'))
    .filter((name) => name.endsWith('.js'))
    .map((name) => join(folder, 'dist', name));
  const found = files.filter((file) => last.test(readFileSync(file, 'utf8')));
  expect(found).toHaveLength(1);
  for (const file of found)
    writeFileSync(
      file,
      readFileSync(file, 'utf8').replace(last, (_all, before, end) => `${before},\`${more}\`${end}`),
    );
  return join(folder, 'dist', 'cli.js');
}
