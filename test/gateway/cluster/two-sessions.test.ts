import { expect, it } from 'vitest';
import type { PublicClient } from '../../faults/public-client.ts';
import { ClusterProcesses } from '../../support/cluster-processes.ts';
import { NO_POSTGRES } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { until } from '../../support/until.ts';

const NAME = 'camera.localhost';
const PAUSE_MS = 20;

/** Clients of some gateways ask without a pause. */
class Visitors {
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
  await cluster.startDevice(NAME, 'native');
  const clients = cluster.clients();
  const isSettled = async (but?: number) => {
    const nodes = (await cluster.nodes()).filter((node) => cluster.placeOf(node) !== but);
    return nodes.filter(({ sessions, endpoints }) => sessions === 1 && endpoints === 1).length === 2;
  };
  const served = async () =>
    (await Promise.all(clients.map((client) => client.get(NAME)))).every((it) => it === 'seen');
  await until(() => isSettled(), 'two sessions', { everyMs: 100 });
  await until(served, 'the device by all gateways', { everyMs: 100 });

  const killed = Number((await cluster.serving())[0]);
  const others = new Visitors(clients.filter((_, at) => at !== killed));
  await cluster.gateways[killed]?.kill();
  const killedAt = performance.now();
  await until(() => isSettled(killed), 'two sessions at the gateways that are left', { everyMs: 100 });
  await others.end();
  expect(others.failed.filter((began) => began > killedAt)).toEqual([]);
  await cluster.gateways[killed]?.restart();
  await until(served, 'the device by all gateways', { everyMs: 100 });

  const [emptied] = (await cluster.nodes()).filter(({ sessions }) => sessions > 0);
  if (!emptied) throw new Error('no gateway has a session');
  const emptiedAt = cluster.placeOf(emptied);
  const all = new Visitors(clients);
  const { code, stderr } = await cluster.command('drain', emptied.id);
  expect(code, stderr).toBe(0);
  await until(() => isSettled(emptiedAt), 'two sessions at the gateways that stay', { everyMs: 100 });
  await all.end();
  expect(all.failed).toEqual([]);

  const staying = new Visitors(clients.filter((_, at) => at !== emptiedAt));
  await cluster.gateways[emptiedAt]?.stop();
  await cluster.gateways[emptiedAt]?.restart();
  await until(served, 'the device by all gateways', { everyMs: 100 });
  await staying.end();
  expect(staying.failed).toEqual([]);
  expect(all.asked).toBeGreaterThan(100);
});
