import { expect, it } from 'vitest';
import { ClusterProcesses } from '../support/cluster-processes.ts';
import { measured } from '../support/measured.ts';
import { NO_POSTGRES } from '../support/postgres-server.ts';
import { unless } from '../support/requirements.ts';
import { seeded } from '../support/seeded.ts';
import { until } from '../support/until.ts';
import { rounds } from './rounds.ts';

const FAULTS = rounds({ short: 2, full: 40 });
const SEED = Number(process.env.SHOWN_SEED ?? 20_261_201);
const SHOWN_MS = 30_000;
const KINDS = ['killed', 'stopped'] as const;

it(`what the other gateways show is what clients get there, within 30 s of each of ${FAULTS} losses of a gateway and of its end`, {
  timeout: 240_000 + FAULTS * 120_000,
  ...unless(NO_POSTGRES),
}, async () => {
  const cluster = await ClusterProcesses.start(3, { GATEWAY_PROBES: '*' });
  const clients = cluster.clients();
  const management = await cluster.managementClients();
  // One has two sessions, another any gateway, and the others know one gateway each: these are offline without it.
  await cluster.startDevice('two.localhost', 'native');
  await cluster.startDevice('any.localhost', 'sdk');
  for (const [at, { sessionAddress }] of cluster.gateways.entries())
    await cluster.startDevice(`only-${at}.localhost`, 'sdk', undefined, sessionAddress);
  const hosts = ['two.localhost', 'any.localhost', ...cluster.gateways.map((_, at) => `only-${at}.localhost`)];

  const shownAt = async (at: number) => {
    const { items } = (await management[at]?.endpoints.list()) ?? { items: [] };
    return hosts.map((host) => items.some((item) => item.host === host && item.probe?.reached === true));
  };
  const servedBy = async (at: number) =>
    Promise.all(hosts.map(async (host) => (await clients[at]?.get(host)) === 'seen'));
  /** @param but a gateway that is away */
  const isAgreed = async (but?: number) => {
    for (const at of cluster.gateways.keys()) {
      if (at === but) continue;
      const [shown, served] = await Promise.all([shownAt(at), servedBy(at)]);
      if (shown.join() !== served.join()) return false;
    }
    return true;
  };
  const areAllShown = async () => (await Promise.all([0, 1, 2].map(shownAt))).flat().every(Boolean);
  await until(areAllShown, 'all are shown', { withinMs: 90_000, everyMs: 500 });

  const random = seeded(SEED);
  const after: number[] = [];
  for (let fault = 0; fault < FAULTS; fault++) {
    const kind = KINDS[fault % KINDS.length] as (typeof KINDS)[number];
    const lost = Math.floor(random() * cluster.gateways.length);
    const gateway = cluster.gateways[lost];
    const name = `${kind} gateway ${lost} (seed ${SEED}, fault ${fault})`;
    if (kind === 'killed') await gateway?.kill();
    else gateway?.process.child.kill('SIGSTOP');
    const began = performance.now();
    // Until its device is known to be away, both would be as before.
    const isNoticed = async () => (await shownAt((lost + 1) % 3))[2 + lost] === false && (await isAgreed(lost));
    await until(isNoticed, name, { withinMs: SHOWN_MS, everyMs: 500 });
    after.push(performance.now() - began);
    expect((await servedBy((lost + 1) % 3))[2 + lost]).toBe(false);

    if (kind === 'killed') await gateway?.restart();
    else gateway?.process.child.kill('SIGCONT');
    const isBack = async () => (await Promise.all([0, 1, 2].map(servedBy))).flat().every(Boolean);
    await until(isBack, `served again after ${name}`, { withinMs: 120_000, everyMs: 200 });
    const served = performance.now();
    await until(areAllShown, `the end of ${name}`, { withinMs: SHOWN_MS, everyMs: 500 });
    after.push(performance.now() - served);
  }
  measured({
    fault: 'a gateway that is gone, until what the others show is what clients get',
    tried: FAULTS,
    recovery: after,
  });
});
