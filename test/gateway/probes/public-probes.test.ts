import { expect, it } from 'vitest';
import type { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts';
import type { LiveEndpoint, LiveGateway } from '../../../src/gateway/endpoints/live-view.ts';
import type { OnlineEndpoint } from '../../../src/gateway/endpoints/online-endpoint.ts';
import { type ProbeOutcome, REACHED } from '../../../src/gateway/endpoints/probe-outcome.ts';
import type { ProbeResult } from '../../../src/gateway/probes/probes-elsewhere.ts';
import { PublicProbes } from '../../../src/gateway/probes/public-probes.ts';
import type { Store } from '../../../src/gateway/store/store.ts';
import { silentLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';

const NODES = ['nd_1', 'nd_2', 'nd_3'];
const view = (host: string, credentialId = 'cr_1'): LiveEndpoint =>
  ({
    ...{ url: `https://${host}`, host, proto: 'https', internal: false, credentialId, access: ['everyone'] },
    ...{ sessionId: 'ts_1', updatedAt: '2026-01-01T00:00:00Z' },
  }) as unknown as LiveEndpoint;

/** Devices that pay for data, by who says so. */
const METERED: Readonly<Record<string, object>> = {
  label: { labels: { link: 'metered' }, metered: null, link: 'default' },
  operator: { labels: {}, metered: true, link: null },
  agent: { labels: {}, metered: null, link: 'metered' },
};

/** A gateway that asks, as one of several. @param self undefined: it is the only one @param elsewhere what others have found */
function probes(
  chosen: readonly string[],
  endpoints: readonly LiveEndpoint[],
  self?: string,
  elsewhere: ReadonlyMap<string, ProbeResult> = new Map(),
) {
  const clock = new SteeredClock();
  const asked: string[] = [];
  const state = {
    outcome: REACHED as ProbeOutcome | null,
    troubles: 0,
    endpoints,
    holders: ['nd_1'],
  };
  const traffic = {
    get troubles() {
      return state.troubles;
    },
  };
  const devices = { byCredential: (id: string) => METERED[id] ?? { labels: {}, metered: null, link: null } };
  const gateways = () =>
    NODES.map((id): LiveGateway => ({ id, isThis: id === self, state: 'serving' }) as unknown as LiveGateway);
  const all = new PublicProbes(
    {
      store: { devices } as unknown as Store,
      endpoints: { atUrl: () => [{ traffic } as OnlineEndpoint] } as unknown as EndpointRegistry,
      ...{ clock, log: silentLog },
    },
    {
      chosen,
      probe: {
        ask: async ({ url }) => {
          asked.push(url);
          return state.outcome;
        },
      },
      live: {
        endpoints: () => state.endpoints,
        ...(self !== undefined && { gateways }),
        holders: () => new Map(state.endpoints.map(({ url }) => [url, new Set(state.holders)])),
      },
      elsewhere: { at: (url) => elsewhere.get(url) ?? null, learn() {} },
    },
  );
  all.start();
  return { all, clock, asked, state };
}

it('asks what was chosen four times a minute, what is broken more often, and at once when clients get errors', async () => {
  const cam = view('cam.site.example.com');
  const { all, clock, asked, state } = probes(['site.example.com'], [cam, view('cam.other.example.com')]);
  await clock.advance(600_000);
  expect(new Set(asked)).toEqual(new Set([cam.url]));
  expect(asked.length).toBeGreaterThanOrEqual(36);
  expect(asked.length).toBeLessThanOrEqual(41);
  expect(all.unreached()).toEqual([]);

  asked.length = 0;
  state.outcome = { stage: 'upstream', message: 'it answers 502' };
  state.troubles = 1;
  await clock.advance(10_000);
  expect(asked).toHaveLength(1);
  expect(all.unreached()).toMatchObject([{ url: cam.url, stage: 'upstream', message: 'it answers 502' }]);
  // Errors that go on do not make it ask all the time.
  for (let second = 0; second < 60; second++) {
    state.troubles += 1;
    await clock.advance(1_000);
  }
  expect(asked.length).toBeLessThanOrEqual(9);
  state.outcome = REACHED;
  await clock.advance(16_000);
  expect(all.unreached()).toEqual([]);
  state.outcome = null;
  await clock.advance(120_000);
  expect(all.at(cam.url)?.stage).toBeNull();
  state.endpoints = [];
  await clock.advance(2_000);
  expect(all.at(cam.url)).toBeNull();
  all.stop();
  const before = asked.length;
  await clock.advance(600_000);
  expect(asked.length).toBe(before);
});

it.each(Object.keys(METERED))('asks endpoints of devices that pay for data once a day: %s', async (device) => {
  const { all, clock, asked, state } = probes(['*'], [view('sim.example.com', device)]);
  for (let hour = 0; hour < 23; hour++) {
    state.troubles += 1;
    await clock.advance(3_600_000);
  }
  expect(asked).toHaveLength(1);
  await clock.advance(3_700_000);
  expect(asked).toHaveLength(2);
  all.stop();
});

it('one of several gateways asks, and not one that serves the endpoint', async () => {
  const endpoints = Array.from({ length: 30 }, (_, n) => view(`cam-${n}.example.com`));
  const asked = await Promise.all(
    NODES.map(async (node) => {
      const one = probes(['*'], endpoints, node);
      await one.clock.advance(14_000);
      one.all.stop();
      return one.asked;
    }),
  );
  expect(asked[0]).toEqual([]);
  expect(asked.flat().sort()).toEqual(endpoints.map(({ url }) => url).sort());
  expect(asked[1]?.length).toBeGreaterThan(5);
  expect(asked[2]?.length).toBeGreaterThan(5);
  // The one that serves it asks as soon as clients get errors there, until it is mended.
  const [cam] = endpoints;
  const serving = probes(['*'], cam === undefined ? [] : [cam], 'nd_1');
  await serving.clock.advance(30_000);
  expect(serving.asked).toEqual([]);
  serving.state.outcome = { stage: 'upstream', message: null };
  serving.state.troubles = 1;
  await serving.clock.advance(12_000);
  expect(serving.all.unreached()).toHaveLength(1);
  serving.state.outcome = REACHED;
  await serving.clock.advance(14_000);
  expect(serving.all.unreached()).toEqual([]);
  serving.all.stop();
});

it('shows the later one of what this gateway and another one have found', async () => {
  const cam = view('cam.example.com');
  const elsewhere = new Map<string, ProbeResult>();
  const { all, clock, asked } = probes(['*'], [cam], undefined, elsewhere);
  await clock.advance(2_000);
  const now = Date.now();
  const broken = { stage: 'upstream', message: 'it answers 502', since: now } as const;
  elsewhere.set(cam.url, { ...broken, at: now + 1_000 });
  expect([asked.length, all.at(cam.url)]).toEqual([1, { ...broken, at: now + 1_000 }]);
  expect(all.counts().get('none')).toBe(0);
  elsewhere.set(cam.url, { ...broken, at: now - 60_000 });
  expect([all.at(cam.url)?.stage, all.counts().get('none')]).toEqual([null, 1]);
  all.stop();
});

it('asks a device that pays for data a day after another gateway has, which has gone since', async () => {
  const cam = view('sim.example.com', 'agent');
  const at = Date.now() - 3_600_000;
  const elsewhere = new Map([[cam.url, { ...REACHED, at, since: at }]]);
  const { all, clock, asked } = probes(['*'], [cam], undefined, elsewhere);
  await clock.advance(10_000);
  expect([asked.length, all.at(cam.url)?.stage]).toEqual([0, null]);
  elsewhere.set(cam.url, { ...REACHED, at: at - 86_400_000, since: at });
  await clock.advance(2_000);
  expect(asked).toEqual([cam.url]);
  all.stop();
});
