import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { openGatewayStore } from '../../../src/gateway/store/open-gateway-store.ts';
import { issueApiKey } from '../../../src/gateway/store/tokens.ts';
import { rounds } from '../../faults/rounds.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { ClusterProcesses } from '../../support/cluster-processes.ts';
import { EventReceiver, type Reaction } from '../../support/event-receiver.ts';
import { type ApiAnswer, GatewayClient } from '../../support/gateway-client.ts';
import { GatewayProcess } from '../../support/gateway-process.ts';
import { measured } from '../../support/measured.ts';
import { NO_POSTGRES } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { seeded } from '../../support/seeded.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const CHANGES = rounds({ short: 200, full: 10_000 });
const SEED = Number(process.env.EVENTS_SEED ?? Math.floor(Math.random() * 1_000_000));
const WORKERS = 4;
const TAKEOVERS = rounds({ short: 2, full: 6 });
/** Answered changes between two kills, at most. */
const KILL_EVERY = 100;
const TYPES = ['ip_policy_created.v0', 'ip_policy_deleted.v0'];
/** What the receiver does for a while. */
const MOODS: readonly (Reaction | 'refuse')[] = [204, 204, 204, 500, 'die', 'forget', 'hang', 'refuse'];

it(`no event of ${CHANGES} changes is lost, or sent twice under another id, by kill -9 and a receiver that flaps (seed ${SEED})`, {
  timeout: 120_000 + CHANGES * 200,
}, async () => {
  const random = seeded(SEED);
  const folder = temporaryFolder();
  const { receiver, settings } = await startReceiver(folder);
  let apiKey = '';
  const gateway = await GatewayProcess.start(folder, settings, {
    prepare: (store) => {
      apiKey = issueApiKey(store, {}).token;
    },
  });
  const apiUrl = `https://api.localhost:${gateway.httpsPort}`;
  const client = new GatewayClient(
    { ...gateway, apiUrl, httpsPort: gateway.httpsPort, sessionCa: gateway.sessionCa },
    '127.0.0.1',
    apiKey,
  );
  await subscribe(client, receiver);

  let isOver = false;
  let cut = 0;
  const flapping = flap(
    receiver,
    random,
    () => isOver,
    () => {
      cut += 1;
    },
  );
  const { answered, kills } = await changeAndKill(client, gateway, random);
  isOver = true;
  await flapping;

  // The gateway knows what it has committed, answered or not.
  const store = openGatewayStore({ dataDir: join(folder, 'data'), encryptionKey: null });
  const rows = store.auditLog.after('', TYPES, 2 * CHANGES);
  store.database.close();
  const distinct = () => [...new Set(receiver.ids)];
  const patience = { withinMs: 60_000 + CHANGES * 50, everyMs: 100 };
  await until(() => distinct().length >= rows.length, `events of seed ${SEED}`, patience);
  await gateway.stop();
  await receiver.refuse();
  expect(distinct(), 'all that was committed, in its order').toEqual(rows.map(({ id }) => id));
  expect(receiver.ids, 'none again after a later one').toEqual(receiver.ids.toSorted());
  const known = new Set(rows.map(({ type, object_id }) => `${type} ${object_id}`));
  expect(known.size, 'one event of each change').toBe(rows.length);
  expect(
    answered.filter((change) => !known.has(change)),
    'answered, but lost',
  ).toEqual([]);
  const repeats = receiver.ids.length - rows.length;
  expect(repeats, 'none again without a kill or a lost acknowledgement').toBeLessThanOrEqual(kills + cut);
  measured({
    fault: 'kill -9 of the gateway, and a receiver of events that flaps',
    tried: kills,
    note: `${rows.length} events arrived in order, ${repeats} of them more than once`,
  });
});

it('of two gateways, the second sends what the first, which is killed, has not sent, and at most one event again', {
  timeout: 240_000,
  ...unless(NO_POSTGRES),
}, async () => {
  const { receiver, settings } = await startReceiver(temporaryFolder());
  const cluster = await ClusterProcesses.start(2, settings);
  const apiKey = (await cluster.command('api-key', 'create')).stdout.trim();
  const clients = cluster.gateways.map(
    ({ httpsPort, sessionCa }) =>
      new GatewayClient({ apiUrl: `https://api.localhost:${httpsPort}`, httpsPort, sessionCa }, '127.0.0.1', apiKey),
  );
  await subscribe(clients[0] as GatewayClient, receiver);
  const change = (at: number) => clients[at]?.call('POST', '/ip_policies', {}).catch(() => null);
  const answered: string[] = [];
  for (let kills = 0; kills < TAKEOVERS; kills++) {
    const [killed, left] = kills % 2 === 0 ? [0, 1] : [1, 0];
    for (let count = 0; count < 20; count++) answered.push(String((await change(killed))?.body.id));
    // While events are under way: 20 take longer than the API took to answer.
    await cluster.gateways[killed]?.kill();
    await until(async () => (await change(left))?.status === 201, 'the other gateway', {
      withinMs: 60_000,
      everyMs: 200,
    });
    await cluster.gateways[killed]?.restart();
    await until(async () => (await change(killed))?.status === 201, 'it again', { withinMs: 60_000, everyMs: 200 });
  }
  const lines = (await cluster.command('log', '--export', '--type', 'ip_policy')).stdout.trim().split('\n');
  const sent = lines.map((line) => JSON.parse(line) as { event_id: string; object: { id: string } });
  const distinct = () => [...new Set(receiver.ids)];
  await until(() => distinct().length >= sent.length, 'all events', { withinMs: 60_000 });
  await receiver.refuse();
  expect(distinct()).toEqual(sent.map(({ event_id }) => event_id));
  expect(receiver.ids).toEqual(receiver.ids.toSorted());
  expect(receiver.ids.length - sent.length, 'none again without a kill').toBeLessThanOrEqual(TAKEOVERS);
  const known = new Set(sent.map(({ object }) => object.id));
  expect(answered.filter((id) => !known.has(id))).toEqual([]);
  measured({
    fault: 'kill -9 of the one of two gateways that sends events',
    tried: TAKEOVERS,
    note: `${sent.length} events arrived in order, ${receiver.ids.length - sent.length} of them more than once`,
  });
});

/** A receiver, and what makes a gateway send to it. */
async function startReceiver(folder: string) {
  const { certificatePem: cert, privateKeyPem: key } = await issueCertificate({
    subject: 'CN=receiver',
    names: ['127.0.0.1'],
  });
  const receiver = new EventReceiver({ cert, key });
  await receiver.listen();
  const trusted = join(folder, 'receiver.pem');
  writeFileSync(trusted, cert);
  return { receiver, settings: { GATEWAY_POLICY_NETWORKS: '127.0.0.0/8', NODE_EXTRA_CA_CERTS: trusted } };
}

async function subscribe(client: GatewayClient, receiver: EventReceiver): Promise<void> {
  const created = await client.call('POST', '/event_destinations', { target: { webhook: { url: receiver.url } } });
  const sources = TYPES.map((type) => ({ type }));
  const subscription = { sources, destination_ids: [created.body.id] };
  expect((await client.call('POST', '/event_subscriptions', subscription)).status).toBe(201);
}

/**
 * Changes the receiver's mood again and again, and ends with a good one.
 *
 * @param onCut is called whenever an acknowledgement may not have arrived
 */
async function flap(
  receiver: EventReceiver,
  random: () => number,
  isOver: () => boolean,
  onCut: () => void,
): Promise<void> {
  while (!isOver()) {
    const mood = MOODS[Math.floor(random() * MOODS.length)] ?? 204;
    if (mood === 'refuse') {
      onCut();
      await receiver.refuse();
    } else
      receiver.react = () => {
        if (mood === 'forget') onCut();
        return mood;
      };
    await delay(random() * 600);
    if (mood === 'refuse') await receiver.listen();
    if (mood !== 'hang') continue;
    onCut();
    receiver.reset();
  }
  receiver.react = () => 204;
}

/** Creates and deletes IP policies, and kills the gateway now and then. */
async function changeAndKill(client: GatewayClient, gateway: GatewayProcess, random: () => number) {
  const answered: string[] = [];
  let kills = 0;
  let killAt = random() * KILL_EVERY;
  let restart: Promise<void> | null = null;
  /** Null: it was killed, so that nobody knows. */
  const change = async (method: string, path: string, body?: object): Promise<ApiAnswer | null> => {
    await restart;
    const answer = await client.call(method, path, body).catch(() => null);
    if (answer === null) await delay(10);
    return answer;
  };
  const work = async () => {
    while (answered.length < CHANGES) {
      const made = await change('POST', '/ip_policies', {});
      if (made?.status !== 201) continue;
      const id = String(made.body.id);
      answered.push(`${TYPES[0]} ${id}`);
      if (random() < 0.5) {
        const gone = await change('DELETE', `/ip_policies/${id}`);
        if (gone?.status === 204) answered.push(`${TYPES[1]} ${id}`);
      }
      if (answered.length < killAt || restart !== null) continue;
      killAt = answered.length + random() * KILL_EVERY;
      kills += 1;
      restart = gateway.restart();
      await restart;
      restart = null;
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, work));
  return { answered, kills };
}
