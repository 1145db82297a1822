import { expect, it, onTestFinished } from 'vitest';
import { LossReports } from '../../../src/gateway/cluster/loss-reports.ts';
import type { Condition } from '../../../src/gateway/conditions/conditions.ts';
import type { Message } from '../../../src/gateway/events/message.ts';
import { MessageEngine } from '../../../src/gateway/messages/message-engine.ts';
import { LOOK_MS } from '../../../src/gateway/messages/start-messages.ts';
import { MESSAGE_TYPE } from '../../../src/gateway/store/events.ts';
import { lostCommits } from '../../../src/gateway/store/lost-commits.ts';
import { openForChanges } from '../../../src/gateway/store/open-gateway-store.ts';
import { CONDITIONS } from '../../../src/management/condition-kinds.ts';
import { MessageRuleCreate } from '../../../src/management/resources/message-rule.ts';
import { FlakyProxy } from '../../support/flaky-proxy.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { silentLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
const BY = { by: 'gateway', from: null };
const DESTINATION = 'ed_1';

/** A gateway that tells of a condition, and what its destination gets, on a database whose place a standby can take. */
async function telling() {
  const server = await PostgresServer.start();
  onTestFinished(() => server.end());
  const proxy = await FlakyProxy.start(server.address);
  onTestFinished(() => proxy.close());
  const location = { dataDir: temporaryFolder(), encryptionKey: KEY, databaseUrl: server.url(proxy.address) };
  const { store, shared, close } = await openForChanges(location, { older: 'upgrade', log: silentLog });
  onTestFinished(close);
  if (shared === null) throw new Error('it has no shared database');
  const received: string[] = [];
  let acknowledged: Record<string, string> = {};
  const losses = new LossReports(
    { store, options: {}, log: silentLog },
    { shared, nodes: null, acknowledged: () => acknowledged },
  );
  const onLoss = (loss: Parameters<LossReports['report']>[0]) => losses.report(loss);
  await shared.serve({ address: 'alone', alone: true, build: '1' }, { onRemoved: () => {}, onLoss }, 50);
  const common = { created_at: store.now(), description: null, metadata: null };
  await store.database.write(() => {
    const row = { id: DESTINATION, ...common };
    const whole = { ...row, ...store.eventDestinations.sealed({ kind: 'file', name: 'ops' }, DESTINATION) };
    store.eventDestinations.insert(whole);
    store.eventDeliveries.begin(whole);
    const rule = MessageRuleCreate.parse({ destination_ids: [DESTINATION], after_minutes: 2 });
    store.messageRules.insert({ ...rule, id: 'mr_1', ...common });
  }, BY);
  const clock = new SteeredClock();
  const wrong: Condition[] = [];
  const engine = new MessageEngine(
    { store, clock, log: silentLog },
    { conditions: async () => wrong, live: {}, origin: 'https://api.gateway.test', isSender: () => true },
  );
  /** As the delivery does: what has arrived is never sent again. */
  const deliver = async () => {
    const delivery = store.eventDeliveries.get(DESTINATION);
    const waiting = store.activityEvents
      .where('type = ? AND only_for = ? ORDER BY id', [MESSAGE_TYPE, DESTINATION])
      .filter(({ id }) => id > (acknowledged[DESTINATION] ?? delivery?.delivered ?? ''));
    for (const { id, object } of waiting) {
      received.push(
        `${(object as unknown as Message).kind} ${(object as unknown as Message).incident === null ? '' : 'of another'}`.trim(),
      );
      acknowledged = { [DESTINATION]: id };
    }
    const latest = acknowledged[DESTINATION];
    if (latest !== undefined)
      await store.database.write(() => store.eventDeliveries.acknowledged(DESTINATION, latest), null);
  };
  const pass = async (minutes: number) => {
    for (let left = minutes * 60_000; left > 0; left -= LOOK_MS) {
      clock.skip(LOOK_MS);
      await engine.look();
    }
    await deliver();
    await engine.look();
  };
  /** The standby takes the place of the server. */
  const promote = async (standby: PostgresServer) => {
    const lost = lostCommits(store.database)?.commits;
    proxy.divert(() => standby.address);
    await standby.promote();
    await until(async () => {
      await shared.refresh().catch(() => {});
      return lostCommits(store.database)?.commits !== lost && !losses.isOpen;
    }, 'the loss');
  };
  const { id, severity, title, remedy } = { id: 'disk' as const, ...CONDITIONS.disk };
  const condition: Condition = { id, severity, message: title, remedy };
  return { server, store, wrong, condition, pass, promote, received };
}

const settled = async (server: PostgresServer, reach: () => Promise<unknown>) => {
  const standby = await server.standby();
  await until(
    () =>
      reach().then(
        () => true,
        () => false,
      ),
    'the database answers again',
  );
  return standby;
};

it('tells once what has begun, and once that it is over, when a promoted standby lacks both', {
  ...unless(NO_POSTGRES),
  timeout: 60_000,
}, async () => {
  const { server, store, wrong, condition, pass, promote, received } = await telling();
  const write = () => store.database.write(() => store.database.setFact('something', String(Math.random())), null);
  await pass(2);
  const standby = await settled(server, write);
  wrong.push(condition);
  await pass(5);
  expect(received).toEqual(['begun']);
  await promote(standby);
  await pass(10);
  expect(received).toEqual(['begun']);
  const another = await settled(standby, write);
  wrong.length = 0;
  await pass(10);
  expect(received).toEqual(['begun', 'over of another']);
  await promote(another);
  await pass(40);
  expect(received).toEqual(['begun', 'over of another']);
  expect(store.conditionHistory.unsettled()).toEqual([]);
  const [row, ...more] = store.conditionHistory.where("condition = 'disk'", []);
  expect(more).toEqual([]);
  expect(row?.told.map(({ kind }) => kind)).toEqual(['begun', 'over']);
});
