import { EventEmitter } from 'node:events';
import type { Response } from 'express';
import { beforeEach, expect, it } from 'vitest';
import {
  type ChangedEvent,
  DashboardFeed,
  type Figures,
  type TrafficEvent,
} from '../../../src/gateway/api/dashboard/dashboard-feed.ts';
import {
  type CountedElsewhere,
  countedBy,
  type LiveEndpoint,
  type LiveTunnel,
} from '../../../src/gateway/endpoints/live-view.ts';
import { EndpointTraffic } from '../../../src/gateway/endpoints/traffic-counts.ts';
import { EdgeCounters } from '../../../src/gateway/metrics/edge-counters.ts';
import { nothingOnline } from '../../support/nothing-online.ts';
import { ENDPOINT, LABELLED_TUNNEL, SESSION, TUNNEL } from '../../support/online-agent.ts';
import { SteeredClock } from '../../support/steered-clock.ts';

/** A page that reads its events at once, unless it is slow. */
class Page extends EventEmitter {
  events: [name: string, data: unknown][] = [];
  readonly req = { headers: {} };
  writableLength = 0;
  state: 'open' | 'ended' | 'destroyed' = 'open';
  setHeader(): void {}

  write(text: string): void {
    for (const event of text.split('\n\n').filter(Boolean)) {
      const [, name = '', data = ''] = /^event: (.*)\ndata: (.*)$/.exec(event) ?? [];
      this.events.push([name, JSON.parse(data)]);
    }
  }

  end(): void {
    this.state = 'ended';
    this.emit('close');
  }

  destroy(): void {
    this.state = 'destroyed';
    this.emit('close');
  }

  /** The events since the last call, by name. */
  take(): { figures: Figures[]; traffic: TrafficEvent[]; changed: ChangedEvent[]; names: string[] } {
    const events = this.events;
    this.events = [];
    const named = (wanted: string) => events.flatMap(([name, data]) => (name === wanted ? [data] : []));
    return {
      figures: named('figures') as Figures[],
      traffic: named('traffic') as TrafficEvent[],
      changed: named('changed') as ChangedEvent[],
      names: events.map(([name]) => name),
    };
  }
}

let clock: SteeredClock;
let endpoints: LiveEndpoint[];
let counters: EdgeCounters;
let feed: DashboardFeed;
let tunnels: LiveTunnel[];
let rows: ChangedEvent['rows'];
let elsewhere: CountedElsewhere;
let staleSeconds: number | null;

beforeEach(() => {
  clock = new SteeredClock();
  endpoints = [];
  counters = new EdgeCounters();
  tunnels = [];
  rows = {};
  staleSeconds = null;
  elsewhere = { counted: [], missing: [] };
  const live = {
    ...{ ...nothingOnline, sessions: () => [SESSION], endpoints: () => endpoints, tunnels: () => tunnels },
    countedElsewhere: () => elsewhere,
  };
  feed = new DashboardFeed({ live, counters, version: '1.2.3', staleSeconds: () => staleSeconds, changedRows, clock });
});

function changedRows(): ChangedEvent['rows'] {
  const taken = rows;
  rows = {};
  return taken;
}

function open(isSignedIn = () => true): Page {
  const page = new Page();
  feed.open(page as unknown as Response, isSignedIn);
  return page;
}

function endpoint(id: string): { shown: LiveEndpoint; traffic: EndpointTraffic } {
  const traffic = new EndpointTraffic();
  return { shown: { ...ENDPOINT, id, traffic }, traffic };
}

it('figures are of all gateways, also of an endpoint with another id at another gateway', async () => {
  const [here, there] = [endpoint('ep_here'), endpoint('ep_there')];
  here.traffic.requests = 1;
  there.traffic.requests = 2;
  counters.responded(200);
  const totals = { connections: 3, responses: 4, errors: 0, upstreamFailures: 0, refusedByPolicy: 0 };
  elsewhere = {
    counted: [{ ...countedBy(totals, [there.shown]), address: '10.0.0.2:443' }],
    missing: ['10.0.0.2:443'],
  };
  endpoints = [here.shown];
  const page = open();
  expect(page.take()).toMatchObject({
    figures: [{ connections: 3, responses: 5, missing: ['10.0.0.2:443'] }],
    traffic: [{ isAll: true, endpoints: { ep_here: [3, 0, 0, 0] } }],
  });
  there.traffic.requests = 5;
  elsewhere = { counted: [{ ...countedBy(totals, [there.shown]), address: '10.0.0.2:443' }], missing: [] };
  await clock.advance(1_000);
  expect(page.take()).toMatchObject({
    figures: [{ missing: [] }],
    traffic: [{ endpoints: { ep_here: [6, 0, 0, 0] } }],
  });
});

it('open pages learn how old what they show is while the shared database is away, and that it is current again', async () => {
  const page = open();
  expect(page.take().figures).toMatchObject([{ staleSeconds: null }]);
  for (const age of [2, 3, null]) {
    staleSeconds = age;
    await clock.advance(1_000);
    expect(page.take().figures).toMatchObject([{ staleSeconds: age }]);
  }
});

it('an opened page gets the figures and the traffic of all endpoints that had any', () => {
  const [busy, idle] = [endpoint('ep_busy'), endpoint('ep_idle')];
  endpoints = [busy.shown, idle.shown, { ...ENDPOINT, id: 'ep_edge', traffic: null }];
  Object.assign(busy.traffic, { requests: 5, errors: 1, received: 300, sent: 4000 });
  counters.responded(200);
  counters.responded(503);
  const { figures, traffic } = open().take();
  expect(figures).toMatchObject([{ version: '1.2.3', agents: 1, endpoints: 3, responses: 2, errors: 1 }]);
  expect(traffic).toEqual([{ isAll: true, endpoints: { ep_busy: [5, 1, 300, 4000] } }]);
});

it('later events have only the endpoints whose traffic has changed, and none without news', async () => {
  const [one, other] = [endpoint('ep_1'), endpoint('ep_2')];
  endpoints = [one.shown, other.shown];
  other.traffic.requests = 7;
  const page = open();
  await clock.advance(2_000);
  page.take();
  one.traffic.sent = 12;
  await clock.advance(2_000);
  expect(page.take()).toMatchObject({ figures: [], traffic: [{ isAll: false, endpoints: { ep_1: [0, 0, 0, 12] } }] });
  await clock.advance(2_000);
  expect(page.take().names).toEqual([]);
});

it('names what comes and goes, with its authtoken, and tells nothing of traffic', async () => {
  const [one, other] = [endpoint('ep_1'), endpoint('ep_2')];
  endpoints = [one.shown];
  const page = open();
  expect(page.take().changed).toEqual([{ online: null, rows: null }]);
  endpoints = [one.shown, other.shown];
  tunnels = [TUNNEL, LABELLED_TUNNEL];
  await clock.advance(1_000);
  expect(page.take().changed).toEqual([{ online: ['ep_2', 'cr_1', LABELLED_TUNNEL.id], rows: {} }]);
  one.traffic.requests += 1;
  counters.responded(200);
  await clock.advance(1_000);
  expect(page.take().names).toEqual(['figures', 'traffic']);
  endpoints = [other.shown];
  await clock.advance(1_000);
  expect(page.take().changed).toEqual([{ online: ['ep_1', 'cr_1'], rows: {} }]);
  endpoints = Array.from({ length: 200 }, (_, n) => endpoint(`ep_many${n}`).shown);
  await clock.advance(1_000);
  expect(page.take().changed).toEqual([{ online: null, rows: {} }]);
});

it('names changed rows within a second, and to a page that opens later only what changes from then on', async () => {
  const page = open();
  page.take();
  rows = { devices: ['dev_1'] };
  await clock.advance(1_000);
  expect(page.take()).toMatchObject({
    figures: [],
    traffic: [],
    changed: [{ online: [], rows: { devices: ['dev_1'] } }],
  });
  await clock.advance(1_000);
  expect(page.take().names).toEqual([]);
  rows = null;
  const later = open();
  expect(page.take().changed).toEqual([{ online: [], rows: null }]);
  expect(later.take().names).toEqual(['figures', 'traffic', 'changed']);
  await clock.advance(1_000);
  expect(later.take().names).toEqual([]);
});

it('a page without news gets a sign of life every ten seconds', async () => {
  const page = open();
  await clock.advance(2_000);
  page.take();
  await clock.advance(20_000);
  expect(page.take().names).toEqual(['alive', 'alive']);
});

it('a page that is signed out, or that does not read, gets nothing more', async () => {
  let isSignedIn = true;
  const [out, slow, other] = [open(() => isSignedIn), open(), open()];
  isSignedIn = false;
  slow.writableLength = 5_000_000;
  counters.responded(200);
  await clock.advance(2_000);
  expect([out.state, slow.state, other.state]).toEqual(['ended', 'destroyed', 'open']);
});

it('nothing is timed while no page is open', () => {
  expect(clock.sleeping).toBe(0);
  const page = open();
  expect(clock.sleeping).toBe(1);
  page.end();
  expect(clock.sleeping).toBe(0);
});

it('the 33rd page is refused with 429', () => {
  for (let count = 0; count < 32; count += 1) open();
  expect(() => open()).toThrow(expect.objectContaining({ status: 429 }));
});
