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

  /** @param but a gateway that is away */
  const others = (but?: number) => [...cluster.gateways.keys()].filter((at) => at !== but);
  /** Each gateway shows what it has asked; which one asks changes. */
  const shown = async (but?: number) => {
    const lists = await Promise.all(others(but).map((at) => management[at]?.endpoints.list()));
    const items = lists.flatMap((list) => list?.items ?? []);
    return hosts.map((host) => {
      const probes = items.filter((item) => item.host === host).flatMap(({ probe }) => probe ?? []);
      return probes.length > 0 && probes.every(({ reached }) => reached);
    });
  };
  const served = async (but?: number) => {
    const by = await Promise.all(
      others(but).map((at) => Promise.all(hosts.map(async (host) => (await clients[at]?.get(host)) === 'seen'))),
    );
    return hosts.map((_, at) => by.every((answers) => answers[at]));
  };
  const isAgreed = async (but?: number) =>
    (await Promise.all([shown(but), served(but)])).map(String).every((state, _, [first]) => state === first);
  const areAllShown = async () => (await shown()).every(Boolean);
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
    const isNoticed = async () => (await shown(lost))[2 + lost] === false && (await isAgreed(lost));
    await until(isNoticed, name, { withinMs: SHOWN_MS, everyMs: 500 });
    after.push(performance.now() - began);
    expect((await served(lost))[2 + lost]).toBe(false);

    if (kind === 'killed') await gateway?.restart();
    else gateway?.process.child.kill('SIGCONT');
    const isBack = async () => (await served()).every(Boolean);
    await until(isBack, `served again after ${name}`, { withinMs: 120_000, everyMs: 200 });
    const backAt = performance.now();
    await until(areAllShown, `the end of ${name}`, { withinMs: SHOWN_MS, everyMs: 500 });
    after.push(performance.now() - backAt);
  }
  measured({
    fault: 'a gateway that is gone, until what the others show is what clients get',
    tried: FAULTS,
    recovery: after,
  });
});
