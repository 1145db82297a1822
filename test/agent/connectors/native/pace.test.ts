import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { LinkPace, openLinkPace, TICK_MS } from '../../../../src/agent/connectors/link-pace.ts';
import { openLink } from '../../../../src/agent/open-link.ts';
import { StreamType } from '../../../../src/agent-protocol/messages.ts';
import { NO_PROXIES } from '../../../../src/lib/network/proxy-rules.ts';
import { GRANT, startRecordingGateway } from '../../../support/recording-gateway.ts';
import { silentLog } from '../../../support/silent-log.ts';
import { SteeredClock } from '../../../support/steered-clock.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';

const DAY_MS = 86_400_000;
const PATIENCE = { timeout: 20_000 };

/** A session at a gateway that grants what it is asked for. */
async function sessionWith(kind: 'default' | 'metered', Extra: object = { HeartbeatPace: true }) {
  const gateway = await startRecordingGateway((type, body) => {
    if (type === StreamType.auth) return { Version: '3', ClientId: 'ts_1', Extra };
    return type === StreamType.pace ? body : GRANT(type, body);
  });
  const clock = new SteeredClock();
  const kept: number[] = [];
  const pace = new LinkPace(kind, clock, undefined, ({ ticks }) => void kept.push(ticks));
  const link = await openLink('native', {
    authtoken: () => 'the-authtoken',
    serverAddr: gateway.address,
    authorities: { pem: gateway.cert },
    proxies: NO_PROXIES,
    version: '1.2.3',
    log: silentLog,
    clock,
    pace,
  });
  onTestFinished(() => link.close());
  const session = await link.connect();
  onTestFinished(() => session.close());
  let beats = 0;
  const agreed = () => gateway.requests.filter(([type]) => type === StreamType.pace).map(([, body]) => body.IntervalMs);
  /** So many ticks, with time for what they send to be answered. */
  const tick = async (count: number) => {
    for (let n = 0; n < count; n++) {
      const before = gateway.connections.map(({ lastReadAt }) => lastReadAt).join();
      await clock.advance(TICK_MS);
      await new Promise((resolve) => setTimeout(resolve, 4));
      if (gateway.connections.map(({ lastReadAt }) => lastReadAt).join() !== before) beats += 1;
    }
  };
  const sent = async (count: number) => {
    beats = 0;
    await tick(count);
    return beats;
  };
  return { gateway, clock, pace, kept, link, session, agreed, tick, sent };
}

it.each([
  ['default', [7_600, 15_200, 19_000], 5],
  ['metered', [7_600, 15_200, 30_400, 58_900], 2],
] as const)(
  'heartbeats of an idle link that is %s are further apart once the gateway agrees',
  async (kind, steps, few) => {
    const { agreed, tick, sent } = await sessionWith(kind);
    await vi.waitFor(async () => {
      await tick(10);
      expect(agreed()).toEqual(steps);
    }, PATIENCE);
    expect(await sent(50)).toBeLessThanOrEqual(few + 1);
    expect(agreed()).toEqual(steps);
  },
);

it('heartbeats stay close together at a gateway that does not agree on them', async () => {
  const { agreed, sent } = await sessionWith('metered', {});
  await sent(60);
  expect(agreed()).toEqual([]);
  expect(await sent(20)).toBeGreaterThanOrEqual(9);
});

it('a silent loss of an idle link is noticed within 30 s, and the next one has more heartbeats', async () => {
  const { gateway, clock, session, link, kept, agreed, tick } = await sessionWith('default');
  await vi.waitFor(async () => {
    await tick(10);
    expect(agreed()).toHaveLength(3);
  }, PATIENCE);
  // Up to the last answer.
  const readAt = () => gateway.connections[0]?.lastReadAt;
  for (let before = readAt(); before === readAt(); ) await tick(1);
  gateway.sockets[0]?.pause();
  let reason: string | null = null;
  void session.lost.then((message) => {
    reason = message;
  });
  const from = clock.now();
  while (reason === null) await tick(1);
  expect(reason).toBe('the gateway no longer answers heartbeats');
  expect(clock.now() - from).toBeGreaterThan(20_000);
  expect(clock.now() - from).toBeLessThanOrEqual(30_000);
  expect(kept).toEqual([]);
  const next = await link.connect();
  expect(kept).toEqual([5]);
  await next.close();
});

it('what was learnt of a network is kept, and tried again after a day', async () => {
  const file = join(temporaryFolder(), 'link.json');
  const clock = new SteeredClock();
  const open = () => openLinkPace({ kind: 'default', isFixed: false }, file, { clock, log: silentLog });
  const first = await open();
  first.lost(10);
  first.joined();
  expect(first.most).toBe(5);
  await vi.waitFor(
    async () => expect(JSON.parse(await readFile(file, 'utf8'))).toEqual({ heartbeat_s: 9.5, metered: null }),
    PATIENCE,
  );
  const second = await open();
  expect(second.most).toBe(5);
  clock.skip(DAY_MS);
  expect(second.most).toBe(10);
  await vi.waitFor(
    async () => expect(JSON.parse(await readFile(file, 'utf8'))).toMatchObject({ heartbeat_s: 19 }),
    PATIENCE,
  );
  await writeFile(file, '{"heartbeat_s": -1}');
  expect((await open()).most).toBe(10);
});

it('the gateway says whether a link is metered: kept over restarts, without a say where there is a data budget', async () => {
  const file = join(temporaryFolder(), 'link.json');
  const clock = new SteeredClock();
  const open = (isFixed = false) => openLinkPace({ kind: 'default', isFixed }, file, { clock, log: silentLog });
  const first = await open();
  first.follow(true);
  expect([first.kind, first.most, first.moreMs]).toEqual(['metered', 31, 5_000]);
  await vi.waitFor(async () => expect(JSON.parse(await readFile(file, 'utf8')).metered).toBe(true), PATIENCE);
  const second = await open();
  expect([second.kind, second.own]).toEqual(['metered', 'default']);
  second.lost(20);
  second.joined();
  await vi.waitFor(async () => expect(JSON.parse(await readFile(file, 'utf8')).heartbeat_s).toBe(19), PATIENCE);
  expect((await open()).most).toBe(10);
  clock.skip(2 * DAY_MS);
  expect(second.most).toBe(20);
  await vi.waitFor(async () => expect(JSON.parse(await readFile(file, 'utf8')).heartbeat_s).toBe(38), PATIENCE);
  const budgeted = await open(true);
  budgeted.follow(true);
  expect(budgeted.kind).toBe('default');
  second.follow(false);
  expect([second.kind, second.most]).toEqual(['default', 10]);
  await vi.waitFor(async () => expect(JSON.parse(await readFile(file, 'utf8')).metered).toBe(false), PATIENCE);
});

it('an outage of the network teaches nothing, and neither does a loss in use', async () => {
  const clock = new SteeredClock();
  const pace = new LinkPace('default', clock);
  pace.lost(10);
  clock.skip(21_000);
  pace.joined();
  expect(pace.most).toBe(10);
  pace.lost(2);
  pace.joined();
  expect(pace.most).toBe(10);
});

it('a metered session leaves the limits of its first heartbeats to the gateway', async () => {
  const begun = async (kind: 'default' | 'metered') => {
    const { gateway } = await sessionWith(kind);
    const [, auth] = gateway.requests.find(([type]) => type === StreamType.auth) ?? [];
    return (auth?.Extra as { HeartbeatInterval?: number } | undefined)?.HeartbeatInterval;
  };
  expect(await begun('metered')).toBeUndefined();
  expect(await begun('default')).toBe(4e9);
});
