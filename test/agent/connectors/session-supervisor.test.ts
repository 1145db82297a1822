import { expect, it } from 'vitest';
import type { ConnectedEndpoint } from '../../../src/agent/connectors/connector.ts';
import { type GatewaySession, SessionRefused } from '../../../src/agent/connectors/gateway-link.ts';
import { ProgressMonitor } from '../../../src/agent/connectors/progress-monitor.ts';
import type { NetworkRoute } from '../../../src/agent/connectors/route-watch.ts';
import { SessionSupervisor } from '../../../src/agent/connectors/session-supervisor.ts';
import { createLog } from '../../../src/lib/log/log.ts';
import { seeded } from '../../support/seeded.ts';
import { SteeredClock } from '../../support/steered-clock.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

class FakeSession implements GatewaySession {
  closed = false;
  lose: (reason: string) => void = () => {};
  readonly lost = new Promise<string>((resolve) => {
    this.lose = resolve;
  });

  open(): Promise<ConnectedEndpoint> {
    return Promise.reject(new Error('not in these tests'));
  }

  end(reason: string): void {
    this.lose(reason);
  }

  async close(): Promise<void> {
    this.closed = true;
    this.lose('closed');
  }
}

type Network = 'up' | 'refusing' | 'black hole';

/** A supervisor whose network and gateway the test plays. */
async function supervised({ isMetered = false } = {}) {
  const clock = new SteeredClock();
  const progress = new ProgressMonitor(clock);
  const lines: { level: string; msg: string; reason?: string }[] = [];
  const log = await createLog('info', 'json', { write: (line) => void lines.push(JSON.parse(line)) });
  const world = {
    network: 'up' as Network,
    problem: null as string | null,
    route: { address: '192.0.2.7', device: 'wlan0' } as NetworkRoute | null,
    connect: async (): Promise<GatewaySession> => session(),
    probes: 0,
    probing: 0,
    mostProbing: 0,
    attempts: 0,
    sessions: [] as FakeSession[],
    events: [] as string[],
  };
  const reportUntilLost = async ({ lost }: FakeSession) => {
    const over = new AbortController();
    void lost.then(() => over.abort());
    for (;;) {
      await clock.sleep(2_000, over.signal);
      progress.report();
    }
  };
  const session = () => {
    const made = new FakeSession();
    world.sessions.push(made);
    reportUntilLost(made).catch(() => {}); // lost
    return made;
  };
  const supervisor = new SessionSupervisor({
    gateway: 'gateway.example:443',
    clock,
    isMetered,
    progress,
    log,
    online: () => void world.events.push('online'),
    offline: () => void world.events.push('offline'),
    findRoute: () => async () => world.route,
    probe: async (signal) => {
      world.probes += 1;
      world.probing += 1;
      world.mostProbing = Math.max(world.mostProbing, world.probing);
      try {
        if (world.network === 'refusing') throw new Error('connect ECONNREFUSED');
        if (world.network === 'black hole') await new Promise((_, reject) => signal.addEventListener('abort', reject));
        return { certificate: 'CN=somebody', problem: world.problem, peer: '203.0.113.1' };
      } finally {
        world.probing -= 1;
      }
    },
    connect: () => {
      world.attempts += 1;
      return world.connect();
    },
  });
  return { clock, progress, lines, world, supervisor, session };
}

/** A supervisor whose first attempt succeeds when a session arrives. */
async function connecting() {
  const supervising = await supervised();
  let arrive = (_: GatewaySession) => {};
  supervising.world.connect = () =>
    new Promise((resolve) => {
      arrive = resolve;
    });
  supervising.supervisor.start();
  await supervising.clock.advance(1000);
  return { ...supervising, arrive: (session: GatewaySession) => arrive(session) };
}

it('comes back within 5 s of a new address of the device, which ends no connection by itself', async () => {
  const { clock, lines, world, supervisor } = await supervised();
  supervisor.start();
  await clock.advance(MINUTE);
  world.route = null;
  await clock.advance(MINUTE);
  expect(world.sessions).toHaveLength(1);
  world.route = { address: '198.51.100.9', device: 'wwan0' };
  await clock.advance(5_000);
  expect(world.sessions).toHaveLength(2);
  expect(supervisor.status.state).toBe('online');
  expect(lines.find(({ msg }) => msg === 'session lost')?.reason).toContain('from 192.0.2.7 to 198.51.100.9');
  await clock.advance(HOUR);
  expect(world.sessions).toHaveLength(2);
  await supervisor.stop();
});

it('comes back within half a second of the end of four sessions, and after a pause when they go on ending', async () => {
  const { clock, world, supervisor } = await supervised();
  supervisor.start();
  await clock.advance(MINUTE);
  for (const expected of [2, 3, 4, 5, 5]) {
    world.sessions.at(-1)?.lose('cut');
    await clock.advance(500);
    expect(world.sessions).toHaveLength(expected);
  }
  await clock.advance(2_000);
  expect(world.sessions).toHaveLength(6);
  await clock.advance(MINUTE);
  world.sessions.at(-1)?.lose('cut');
  await clock.advance(500);
  expect(world.sessions).toHaveLength(7);
  await supervisor.stop();
});

it('comes back when a gateway that refuses it says so, and no sooner', async () => {
  const { clock, world, supervisor, session } = await supervised();
  world.connect = async () => {
    throw new SessionRefused('ERR_NGROK_348', 'session limit reached', { retryAfterS: 30 });
  };
  supervisor.start();
  await clock.advance(29_000);
  expect(world.attempts).toBe(1);
  world.connect = async () => session();
  await clock.advance(17_000);
  expect(world.attempts).toBe(2);
  expect(supervisor.status.state).toBe('online');
  await supervisor.stop();
});

it('keeps its session when an old address comes back, or routes change for a moment', async () => {
  const { clock, world, supervisor } = await supervised();
  supervisor.start();
  await clock.advance(MINUTE);
  const before = world.route;
  for (const route of [null, before, { address: '198.51.100.9', device: 'wwan0' }, before, null, before]) {
    world.route = route;
    await clock.advance(1_500);
  }
  expect(world.sessions).toHaveLength(1);
  await supervisor.stop();
});

it.each<Network>(['refusing', 'black hole'])(
  'comes back within 5 s of an outage of any length (%s)',
  async (network) => {
    const { clock, world, supervisor } = await supervised();
    clock.chance = Math.random;
    supervisor.start();
    await clock.advance(MINUTE);
    const waits: number[] = [];
    const lengths: [ms: number, times: number][] = [
      [1_000, 10],
      [10_000, 10],
      [10 * MINUTE, 5],
      [2 * HOUR, 2],
    ];
    for (const lasting of lengths.flatMap(([ms, times]) => Array<number>(times).fill(ms))) {
      world.network = network;
      world.sessions.at(-1)?.lose('cut');
      await clock.advance(lasting + Math.random() * 1000);
      expect(supervisor.session).toBeNull();
      world.network = 'up';
      const from = clock.now();
      while (!supervisor.session) await clock.advance(100);
      waits.push(clock.now() - from);
      await clock.advance(MINUTE);
    }
    expect(Math.max(...waits)).toBeLessThan(5000);
  },
);

it('probes an unreachable gateway seldom on a metered link, and is back within half a minute', async () => {
  const { clock, world, supervisor } = await supervised({ isMetered: true });
  clock.chance = Math.random;
  world.network = 'refusing';
  supervisor.start();
  await clock.advance(HOUR);
  expect(world.probes).toBeLessThan(HOUR / 15_000);
  world.network = 'up';
  const from = clock.now();
  while (!supervisor.session) await clock.advance(100);
  expect(clock.now() - from).toBeLessThan(30_000);
  await supervisor.stop();
});

it('probes an unreachable gateway about every two seconds, with at most eleven at a time', async () => {
  const { clock, world, supervisor } = await supervised();
  clock.chance = Math.random;
  world.network = 'black hole';
  supervisor.start();
  await clock.advance(HOUR);
  expect(world.probes).toBeGreaterThan(HOUR / 3000);
  expect(world.probes).toBeLessThan(HOUR / 1900);
  expect(world.mostProbing).toBeLessThanOrEqual(11);
  expect(world.attempts).toBe(0);
  await supervisor.stop();
  expect(world.probing).toBe(0);
  expect(clock.sleeping).toBe(0);
});

it('backs off from a gateway that refuses', async () => {
  const { clock, world, supervisor } = await supervised();
  clock.chance = Math.random;
  world.connect = async () => Promise.reject(new SessionRefused('ERR_NGROK_107', 'unknown authtoken'));
  supervisor.start();
  await clock.advance(10 * MINUTE);
  expect(world.attempts).toBeGreaterThan(15);
  const before = world.attempts;
  await clock.advance(HOUR);
  expect(world.attempts - before).toBeLessThan(HOUR / 10_000);
  expect(supervisor.status.lastError).toEqual({ code: 'ERR_NGROK_107', message: 'unknown authtoken' });
});

it.each([0, 5_000])('is back within 2 s of each session that was cut after %i ms', async (length) => {
  const { clock, world, supervisor } = await supervised();
  clock.chance = seeded(length);
  supervisor.start();
  await clock.advance(1);
  for (let cut = 0; cut < 40; cut++) {
    await clock.advance(length);
    const { length: before } = world.sessions;
    world.sessions.at(-1)?.lose('cut');
    await clock.advance(900);
    // The first ones are followed at once.
    expect(world.sessions).toHaveLength(cut < 4 ? before + 1 : before);
    await clock.advance(1_100);
    expect(world.sessions).toHaveLength(before + 1);
  }
  await supervisor.stop();
});

it('forgets refusals from before a session', async () => {
  const { clock, world, supervisor, session } = await supervised();
  clock.chance = () => 0.999;
  const refuse = async () => Promise.reject(new SessionRefused('ERR_NGROK_107', 'unknown authtoken'));
  world.connect = refuse;
  supervisor.start();
  await clock.advance(10 * MINUTE);
  world.connect = async () => session();
  await clock.advance(MINUTE);
  world.connect = refuse;
  world.sessions.at(-1)?.lose('cut');
  await clock.advance(2_500);
  world.connect = async () => session();
  await clock.advance(4_000);
  expect(supervisor.status.state).toBe('online');
  await supervisor.stop();
});

it('is back within 6 s after ten minutes in which every attempt broke off', async () => {
  const { clock, world, supervisor, session } = await supervised();
  clock.chance = seeded(1);
  world.connect = () => Promise.reject(new SessionRefused(null, 'connection reset'));
  supervisor.start();
  await clock.advance(10 * MINUTE);
  world.connect = async () => session();
  await clock.advance(6_000);
  expect(supervisor.status.state).toBe('online');
  await supervisor.stop();
});

it.each([
  ['a captive portal', new SessionRefused(null, 'invalid peer certificate')],
  ['a certificate that is not valid at this time', new SessionRefused(null, 'certificate has expired')],
])('is back within 5 s of the end of %s', async (_, refusal) => {
  const { clock, world, supervisor, session } = await supervised();
  clock.chance = seeded(2);
  world.problem = 'not the gateway';
  world.connect = () => Promise.reject(refusal);
  supervisor.start();
  await clock.advance(30 * MINUTE);
  expect(world.attempts).toBeLessThan(150);
  expect(supervisor.status.lastError?.message).toContain('not the gateway');
  world.problem = null;
  world.connect = async () => session();
  await clock.advance(5_000);
  expect(supervisor.status.state).toBe('online');
  await supervisor.stop();
});

it('logs a day without a network in a few lines', async () => {
  const { clock, lines, world, supervisor } = await supervised();
  supervisor.start();
  await clock.advance(MINUTE);
  world.network = 'refusing';
  world.sessions[0]?.lose('cut');
  await clock.advance(24 * HOUR);
  world.network = 'up';
  await clock.advance(MINUTE);
  expect(lines[0]).toMatchObject({ level: 'info', msg: 'session online' });
  expect(lines[1]).toMatchObject({ level: 'warn', reason: 'cut' });
  expect(lines.at(-1)).toMatchObject({ level: 'info', msg: 'session online' });
  expect(lines.length).toBeLessThan(20);
});

it('accepts a session after its deadline when there is no other', async () => {
  const { clock, world, supervisor, session } = await supervised();
  let arrive = (_: GatewaySession) => {};
  world.connect = () =>
    new Promise((resolve) => {
      arrive = resolve;
      world.connect = () => new Promise(() => {});
    });
  supervisor.start();
  await clock.advance(130_000);
  expect(supervisor.session).toBeNull();
  expect(supervisor.status.lastError?.message).toBe(
    'starting a session did not finish within 20 s (certificate presented at its address: CN=somebody)',
  );
  const late = session();
  arrive(late);
  await clock.advance(1);
  expect(supervisor.session).toBe(late);
});

it('closes a late session when another one is online', async () => {
  const { clock, world, supervisor, session } = await supervised();
  let arrive = (_: GatewaySession) => {};
  const { connect } = world;
  world.connect = () =>
    new Promise((resolve) => {
      arrive = resolve;
      world.connect = connect;
    });
  supervisor.start();
  await clock.advance(MINUTE);
  expect(supervisor.status.state).toBe('online');
  const late = session();
  arrive(late);
  await clock.advance(1);
  expect(late.closed).toBe(true);
  expect(supervisor.session).not.toBe(late);
});

it('makes another attempt only every 15 min while eight are pending, and logs that', async () => {
  const { clock, lines, world, supervisor, session } = await supervised();
  world.connect = () => new Promise(() => {});
  supervisor.start();
  await clock.advance(15 * MINUTE);
  expect(world.attempts).toBe(8);
  expect(lines.some(({ reason }) => reason?.includes('8 attempts are pending'))).toBe(true);
  await clock.advance(2 * HOUR);
  expect(world.attempts).toBeLessThanOrEqual(16);
  // None of them ever ends: the device is not lost for that.
  world.connect = async () => session();
  await clock.advance(20 * MINUTE);
  expect(supervisor.status.state).toBe('online');
});

it('logs no failed attempts once a session is online', async () => {
  const { clock, lines, world, supervisor, session } = await supervised();
  const arrivals: ((made: GatewaySession) => void)[] = [];
  world.connect = () => new Promise((resolve) => arrivals.push(resolve));
  supervisor.start();
  await clock.advance(30_000);
  expect(arrivals).toHaveLength(2);
  arrivals[0]?.(session());
  await clock.advance(1);
  expect(supervisor.status).toMatchObject({ state: 'online', lastError: null });
  const { length } = lines;
  await clock.advance(MINUTE);
  expect(supervisor.status).toMatchObject({ state: 'online', lastError: null });
  expect(lines).toHaveLength(length);
});

it('reports progress in every kind of outage, for the watchdog', async () => {
  const refuse = async () => Promise.reject(new SessionRefused('ERR_NGROK_107', 'unknown authtoken'));
  for (const [network, connect] of [['refusing'], ['black hole'], ['up', refuse]] as const) {
    const { clock, progress, world, supervisor } = await supervised();
    clock.chance = () => 1;
    world.network = network;
    if (connect) world.connect = connect;
    supervisor.start();
    let longest = 0;
    for (const from = clock.now(); clock.now() - from < 10 * MINUTE; ) {
      await clock.advance(5000);
      longest = Math.max(longest, progress.silentMs);
    }
    expect(longest).toBeLessThan(MINUTE);
    await supervisor.stop();
    await clock.advance(5 * MINUTE);
    expect(progress.silentMs).toBeGreaterThan(4 * MINUTE);
  }
});

it('reports no progress when eight attempts neither succeed nor fail, so that the watchdog restarts a stuck SDK', async () => {
  const { clock, progress, world, supervisor } = await supervised();
  world.connect = () => new Promise(() => {});
  supervisor.start();
  while (world.attempts < 8) {
    expect(progress.silentMs).toBeLessThan(MINUTE);
    await clock.advance(5_000);
  }
  await clock.advance(3 * MINUTE);
  expect(progress.silentMs).toBeGreaterThan(90_000);
  await supervisor.stop();
});

it('stop() does not wait for a gateway that never answers', async () => {
  const { clock, supervisor, session, arrive } = await connecting();
  await supervisor.stop();
  expect(supervisor.status.state).toBe('stopped');
  const late = session();
  arrive(late);
  await clock.advance(MINUTE);
  expect([late.closed, supervisor.status.state, supervisor.status.lastError]).toEqual([true, 'stopped', null]);
});

it.each([0, 1, 2, 3, 4, 5, 6, 8])(
  'stop() closes a session that begins %i microtasks before or after it',
  async (turns) => {
    for (const isFirst of [true, false]) {
      const { clock, supervisor, session, arrive } = await connecting();
      const made = session();
      if (isFirst) arrive(made);
      else void supervisor.stop();
      for (let turn = 0; turn < turns; turn++) await null;
      if (isFirst) void supervisor.stop();
      else arrive(made);
      await clock.advance(MINUTE);
      expect([isFirst, made.closed, supervisor.status.state]).toEqual([isFirst, true, 'stopped']);
    }
  },
);

it('stop() works at any moment', async () => {
  for (const ms of [0, 1, 1000, MINUTE]) {
    for (const network of ['up', 'refusing', 'black hole'] as const) {
      const { clock, world, supervisor } = await supervised();
      world.network = network;
      supervisor.start();
      await clock.advance(ms);
      await supervisor.stop();
      expect(supervisor.status.state).toBe('stopped');
      expect(world.sessions.every(({ closed }) => closed)).toBe(true);
      expect(clock.sleeping).toBe(0);
    }
  }
});
