import { once } from 'node:events';
import { request } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { ClusterProcesses } from '../../support/cluster-processes.ts';
import { NO_POSTGRES } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { until } from '../../support/until.ts';

const NAMES = ['sdk.localhost', 'native.localhost'];
/** How long upstreams take for an answer. */
const SLOW_MS = 600;
/** Clients of each name at each gateway. */
const CLIENTS = 4;
const PAUSE_MS = 50;

/** Clients that post without a pause. None of these requests can be repeated. */
class Posts {
  static #count = 0;
  /** By the targets of the requests. */
  readonly answers = new Map<string, string>();
  #isOver = false;
  readonly #running: Promise<unknown>;

  constructor(ports: readonly number[]) {
    const clients = ports.flatMap((port) =>
      NAMES.flatMap((name) => Array.from({ length: CLIENTS }, () => [port, name])),
    );
    this.#running = Promise.all(clients.map(([port, name]) => this.#post(Number(port), String(name))));
  }

  async #post(port: number, name: string): Promise<void> {
    while (!this.#isOver) {
      Posts.#count += 1;
      const path = `/${Posts.#count}`;
      const to = { host: '127.0.0.1', port, servername: name, rejectUnauthorized: false, agent: false };
      const req = request({ ...to, method: 'POST', path, headers: { host: name } }).end('x');
      const [answer] = await once(req, 'response').then(
        ([res]) => [String(res.statusCode)],
        ({ code }) => [String(code)],
      );
      this.answers.set(path, answer ?? '');
      req.destroy();
      await delay(PAUSE_MS);
    }
  }

  get kinds(): string[] {
    return [...new Set(this.answers.values())].sort();
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#running;
  }
}

it('requests under way in sessions that a drained gateway has passed on are answered when it stops, with each connector', {
  timeout: 240_000,
  ...unless(NO_POSTGRES),
}, async () => {
  const cluster = await ClusterProcesses.start(3, {}, true);
  const [emptied, ...others] = cluster.gateways;
  if (!emptied) throw new Error('no gateway');
  await cluster.drain(0);
  const received: string[] = [];
  const slowly = (target: string) => {
    received.push(target);
    return delay(SLOW_MS);
  };
  await cluster.startDevice('sdk.localhost', 'sdk', slowly, emptied.sessionAddress);
  // On the port of clients, where most gateways have their agents.
  await cluster.startDevice('native.localhost', 'native', slowly, `connect.localhost:${emptied.httpsPort}`);
  const ports = others.map(({ httpsPort }) => httpsPort);
  const areServed = async () => {
    const posts = new Posts(ports);
    await posts.end();
    return posts.kinds.join() === '200';
  };
  await until(areServed, 'both devices by the other gateways', { everyMs: 100 });

  const posts = new Posts(ports);
  received.length = 0;
  await until(() => received.length > 0, 'requests under way');
  await emptied.replace('SIGTERM');
  await until(areServed, 'both devices after the stop', { everyMs: 100 });
  await posts.end();
  const answered = received.filter((target) => posts.answers.has(target));
  const lost = answered.filter((target) => posts.answers.get(target) !== '200');
  expect([answered.length > 0, lost]).toEqual([true, []]);
  // Agents are away for longer than clients wait where the gateway needs seconds for its start.
  expect(posts.kinds.filter((kind) => kind !== '503')).toEqual(['200']);
});
