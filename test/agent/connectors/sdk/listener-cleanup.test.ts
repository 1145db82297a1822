import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { type Listener, listeners, type Session, SessionBuilder } from '@ngrok/ngrok';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import {
  ListenerCleanup,
  type ListenerCleanupOptions,
  PAUSE_MS,
} from '../../../../src/agent/connectors/sdk/listener-cleanup.ts';
import { FlakyProxy } from '../../../support/flaky-proxy.ts';
import { startTestGateway, type TestGateway } from '../../../support/gateway.ts';
import { recordingLog, silentLog } from '../../../support/silent-log.ts';
import { SteeredClock } from '../../../support/steered-clock.ts';

let gateway: TestGateway;
let proxy: FlakyProxy;
let collect: () => void;
beforeAll(async () => {
  setFlagsFromString('--expose_gc');
  collect = runInNewContext('gc');
  gateway = await startTestGateway();
  proxy = await FlakyProxy.start(gateway.sessionAddress);
});
afterAll(async () => {
  await proxy.close();
  await gateway.close();
});

const NAMES = ['one', 'two', 'three'];

/** A session with three listeners, whose connection is cut. */
async function lose(): Promise<Listener[]> {
  const { session, lost } = await connect();
  const builder = session.httpEndpoint();
  const found: Listener[] = [];
  for (const name of NAMES) found.push(await builder.domain(`${name}.localhost`).listen(false));
  proxy.cut();
  await lost;
  await session.close().catch(() => {});
  return found;
}

async function connect(): Promise<{ session: Session; lost: Promise<void> }> {
  let broke = () => {};
  const lost = new Promise<void>((resolve) => {
    broke = resolve;
  });
  const session = await new SessionBuilder()
    .authtoken(gateway.authtoken)
    .serverAddr(proxy.address)
    .caCert(Buffer.from(gateway.sessionCa))
    .handleDisconnection(() => {
      broke();
      return false;
    })
    .connect();
  return { session, lost };
}

/** Of the listeners that the SDK has in its table. */
const ids = async () => (await listeners()).map((listener) => listener.id());

function setUp(options: Partial<ListenerCleanupOptions> = {}) {
  const clock = new SteeredClock();
  const lost = new ListenerCleanup({ clock, log: silentLog, ...options });
  onTestFinished(() => lost.close());
  return { clock, lost };
}

/** Outside of the test's own function, whose frame would hold them. */
async function handOver(lost: ListenerCleanup): Promise<WeakRef<Listener>[]> {
  const found = await lose();
  expect((await ids()).length).toBe(NAMES.length);
  lost.add(found);
  return found.map((listener) => new WeakRef(listener));
}

it('frees the listeners of a lost session from memory', async () => {
  const { clock, lost } = setUp();
  const found = await handOver(lost);
  await clock.advance(PAUSE_MS);
  await expect.poll(ids).toEqual([]);
  const left = () => {
    collect();
    return found.filter((listener) => listener.deref()).length;
  };
  await expect.poll(left).toBe(0);
});

it('frees the listeners of later sessions', async () => {
  const { clock, lost } = setUp();
  for (let round = 0; round < 3; round++) {
    lost.add(await lose());
    lost.add(await lose());
    expect((await ids()).length).toBe(2 * NAMES.length);
    await clock.advance(PAUSE_MS);
    await expect.poll(ids).toEqual([]);
  }
});

it('empties the SDK’s table even when it cannot connect to itself', async () => {
  const { log, lines } = recordingLog();
  const { clock, lost } = setUp({ log, openGateway: () => Promise.reject(new Error('no loopback')) });
  lost.add(await lose());
  await clock.advance(PAUSE_MS);
  await expect.poll(ids).toEqual([]);
  expect(lines).toMatchObject([{ reason: 'no loopback' }]);
});

it('does nothing after close()', async () => {
  const { clock, lost } = setUp();
  const found = await lose();
  lost.add(found);
  lost.close();
  lost.add(found);
  expect(clock.sleeping).toBe(0);
  await Promise.allSettled(found.map((listener) => listener.close()));
});
