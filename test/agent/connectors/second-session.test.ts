import { expect, it, onTestFinished, vi } from 'vitest';
import type { ConnectedEndpoint } from '../../../src/agent/connectors/connector.ts';
import type { GatewayNode, GatewaySession } from '../../../src/agent/connectors/gateway-link.ts';
import { SecondSession } from '../../../src/agent/connectors/second-session.ts';
import { recordingLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';

/** A session at a gateway, which knows where the others are. */
class Session implements GatewaySession {
  readonly node: NonNullable<GatewaySession['node']>;
  end: (reason: string) => void = () => {};
  readonly lost = new Promise<string>((resolve) => {
    this.end = resolve;
  });
  readonly patience: (number | undefined)[] = [];

  constructor(id: string, others: readonly string[]) {
    this.node = { id, others: async () => others.map((address) => ({ address, serverName: 'connect.test' })) };
  }
  open(): Promise<ConnectedEndpoint> {
    return Promise.reject(new Error('not asked for'));
  }
  async close(patienceMs?: number): Promise<void> {
    this.patience.push(patienceMs);
    this.end('closed');
  }
}

function secondSession(
  connectTo: (node: GatewayNode, signal: AbortSignal) => Promise<GatewaySession>,
  isReserve = false,
) {
  const clock = new SteeredClock();
  clock.chance = () => 0;
  const { log, lines } = recordingLog();
  const events: string[] = [];
  const asked: string[] = [];
  const second = new SecondSession({
    connectTo: (node, signal) => {
      asked.push(node.address);
      return connectTo(node, signal);
    },
    joined: ({ node }) => events.push(`joined ${node?.id}`),
    left: ({ node }) => events.push(`left ${node?.id}`),
    isReserve: () => isReserve,
    ...{ clock, log },
  });
  onTestFinished(() => second.stop());
  return { second, clock, lines, events, asked };
}

it('tries every other gateway before it waits', async () => {
  const { second, events, asked, lines } = secondSession(async ({ address }) => {
    if (address === 'lost:443') throw new Error('refused');
    return new Session('two', []);
  });
  second.follow(new Session('one', ['lost:443', 'two:443']));
  await vi.waitFor(() => expect(events).toEqual(['joined two']));
  expect([asked, second.gateway]).toEqual([['lost:443', 'two:443'], 'two:443']);
  expect(lines.find(({ msg }) => msg === 'no second session; retrying')).toMatchObject({ gateway: 'lost:443' });
});

it('outlives the first session, and moves when that one comes to its gateway, once clients are served', async () => {
  const here = new Session('two', []);
  const there = new Session('three', []);
  const { second, clock, events } = secondSession(async ({ address }) => (address === 'two:443' ? here : there));
  second.follow(new Session('one', ['two:443']));
  await vi.waitFor(() => expect(events).toEqual(['joined two']));
  second.follow(null);
  second.follow(new Session('two', ['three:443']));
  await vi.waitFor(() => expect(clock.sleeping).toBe(1));
  expect(here.patience).toEqual([]);
  await clock.advance(10_000);
  await vi.waitFor(() => expect(events).toEqual(['joined two', 'left two', 'joined three']));
  expect(here.patience).toEqual([30_000]);
});

it('stays where it is when there is no third gateway', async () => {
  const here = new Session('two', []);
  const { second, clock, events } = secondSession(async () => here);
  second.follow(new Session('one', ['two:443']));
  await vi.waitFor(() => expect(events).toEqual(['joined two']));
  second.follow(new Session('two', []));
  await vi.waitFor(() => expect(clock.sleeping).toBe(1));
  await clock.advance(10_000);
  await vi.waitFor(() => expect(clock.sleeping).toBe(1));
  expect([here.patience, events]).toEqual([[], ['joined two']]);
});

it('looks for another session every few seconds after it was lost, and seldom after a minute', async () => {
  let there: Session | null = new Session('two', []);
  const { second, clock, events, asked } = secondSession(async () => {
    if (there === null) throw new Error('refused');
    return there;
  });
  clock.chance = () => 0.999;
  second.follow(new Session('one', ['two:443']));
  await vi.waitFor(() => expect(events).toEqual(['joined two']));
  await clock.advance(10_000);
  // Both gateways were lost, and the first one is back.
  const lost = there;
  there = null;
  lost.end('lost');
  await vi.waitFor(() => expect(events).toEqual(['joined two', 'left two']));
  await clock.advance(30_000);
  expect(clock.delays.filter((ms) => ms > 4_000)).toEqual([]);
  expect(asked.length).toBeGreaterThan(7);
  await clock.advance(60_000);
  expect(clock.delays.some((ms) => ms > 30_000)).toBe(true);
});

it('a gateway that accepts connections and is silent does not keep it from another one', async () => {
  const { second, clock, events } = secondSession(({ address }, signal) =>
    address === 'stopped:443'
      ? new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
      : Promise.resolve(new Session('two', [])),
  );
  second.follow(new Session('one', ['stopped:443', 'two:443']));
  await vi.waitFor(() => expect(clock.sleeping).toBe(1));
  await clock.advance(5_000);
  await vi.waitFor(() => expect(events).toEqual(['joined two']));
});

it('in reserve, is only started when the first session stays away, and ends when that is back', async () => {
  const reserve = new Session('two', []);
  const { second, clock, events, asked } = secondSession(async () => reserve, true);
  const first = new Session('one', ['two:443']);
  second.follow(first);
  await clock.advance(600_000);
  expect(asked).toEqual([]);
  second.follow(null);
  await clock.advance(3_000);
  second.follow(first);
  await clock.advance(60_000);
  expect(asked).toEqual([]);
  second.follow(null);
  await clock.advance(10_000);
  expect([asked, events]).toEqual([['two:443'], ['joined two']]);
  second.follow(first);
  await clock.advance(15_000);
  expect([events, reserve.patience]).toEqual([['joined two', 'left two'], [30_000]]);
});
