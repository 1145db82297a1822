import { setTimeout as delay } from 'node:timers/promises';
import { StreamType } from '../src/agent-protocol/messages.ts';
import { openForChanges } from '../src/gateway/store/open-gateway-store.ts';
import type { Store } from '../src/gateway/store/store.ts';
import { FlakyProxy } from '../test/support/flaky-proxy.ts';
import { freePorts } from '../test/support/free-ports.ts';
import { PostgresServer } from '../test/support/postgres-server.ts';
import { ProtocolAgent } from '../test/support/protocol-agent.ts';
import { silentLog } from '../test/support/silent-log.ts';
import { ms, quantile, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { type Child, startScript } from './support/process.ts';

/** One way between PostgreSQL and the gateway that is far from it. */
const DELAY_MS = Number(process.env.FAR_MS ?? 50);
/** Of others, which are near. */
const WRITES_PER_SECOND = Number(process.env.FAR_WRITES ?? 100);
const NEAR = 2;
const SECONDS = 15;
const BINDS = 70;
/** Of the gateway that is far: as many as each of the others. */
const FAR_WRITES_PER_SECOND = WRITES_PER_SECOND / NEAR;
const encryptionKey = Buffer.alloc(32, 7).toString('base64');

type GatewayProcess = { sessionAddress: string; authtoken: string };

/** How long each of them took, and why others failed. */
interface Outcome {
  readonly tookMs: number[];
  readonly failed: string[];
}

/** A gateway far from PostgreSQL beside others that write all the time: its binds and writes, and what they cost the others. */
export async function benchFar(): Promise<void> {
  const database = await PostgresServer.start();
  const link = await FlakyProxy.start(database.address);
  const near = await Promise.all(Array.from({ length: NEAR }, () => openStore(database.url())));
  const gateway = await startGateway(database.url(link.address));
  link.delay(DELAY_MS, DELAY_MS);
  const far = await openStore(database.url(link.address));
  const beside = async (work: () => Promise<unknown>) => {
    const ended = new AbortController();
    const written = Promise.all(near.map(({ store }) => writes(store, WRITES_PER_SECOND / NEAR, ended.signal)));
    await work();
    ended.abort();
    return together(await written);
  };
  const alone = await beside(() => delay(SECONDS * 1000));
  const binds: Outcome = { tookMs: [], failed: [] };
  const besideBinds = await beside(() => bindAll(gateway.ready, binds));
  let own: Outcome | null = null;
  const besideWrites = await beside(async () => {
    own = await writes(far.store, FAR_WRITES_PER_SECOND, AbortSignal.timeout(SECONDS * 1000));
  });
  section(
    `a gateway ${DELAY_MS} ms (one way) from PostgreSQL beside ${WRITES_PER_SECOND} writes/s of ${NEAR} near it`,
    [
      ['binds of the far one', ...figures(binds)],
      ['writes of the far one', ...figures(own ?? binds)],
      ['writes of the near ones, alone', ...figures(alone)],
      ['beside these binds', ...figures(besideBinds)],
      ['beside these writes', ...figures(besideWrites)],
    ],
  );
  await gateway.stop();
  for (const { close } of [...near, far]) await close();
  await link.close();
  await database.end();
}

function openStore(databaseUrl: string) {
  return openForChanges(
    { dataDir: temporaryFolder(), encryptionKey, databaseUrl },
    { older: 'upgrade', log: silentLog },
  );
}

async function startGateway(databaseUrl: string): Promise<Child<GatewayProcess>> {
  const { first: httpsPort } = await freePorts(1);
  const options = { databaseUrl, encryptionKey, httpsPort, nodeAddress: `127.0.0.1:${httpsPort}` };
  return startScript('gateway', [temporaryFolder(), '127.0.0.1', JSON.stringify(options)]);
}

/** Writes so many times a second, whether writes before have ended or not. */
async function writes(
  { database, botUsers, ids, now }: Store,
  perSecond: number,
  until: AbortSignal,
): Promise<Outcome> {
  const outcome: Outcome = { tookMs: [], failed: [] };
  const all: Promise<void>[] = [];
  const write = () =>
    database.write(() => botUsers.insert({ id: ids.next('bot'), created_at: now(), name: 'bench', active: true }));
  const began = performance.now();
  for (let count = 1; !until.aborted; count += 1) {
    all.push(timed(write, outcome));
    await delay(Math.max(0, began + (count * 1000) / perSecond - performance.now()));
  }
  await Promise.all(all);
  return outcome;
}

/** Agents bind names of their own, whether binds before have ended or not. */
async function bindAll({ sessionAddress, authtoken }: GatewayProcess, outcome: Outcome): Promise<void> {
  const ended = new AbortController();
  const target = { sessionPort: Number(sessionAddress.split(':').at(-1)), authtoken };
  const bind = async (name: string) => {
    const agent = await ProtocolAgent.open({ target, from: '127.0.0.1', signal: ended.signal });
    const request = { Id: '', Proto: 'https', ForwardsTo: '', Opts: { Domain: name }, Extra: {} };
    await timed(async () => {
      const { Error: refused } = JSON.parse(
        (await agent.call(StreamType.bind, JSON.stringify(request))) || '{"Error":"closed"}',
      );
      if (refused) throw new Error(refused);
    }, outcome);
  };
  const all: Promise<void>[] = [];
  for (let count = 0; count < BINDS; count += 1) {
    all.push(bind(`far-${count}.localhost`));
    await delay((SECONDS * 1000) / BINDS);
  }
  await Promise.all(all);
  ended.abort();
}

async function timed(work: () => Promise<unknown>, { tookMs, failed }: Outcome): Promise<void> {
  const began = performance.now();
  try {
    await work();
    tookMs.push(performance.now() - began);
  } catch (error) {
    failed.push(String(error));
  }
}

function together(outcomes: readonly Outcome[]): Outcome {
  return { tookMs: outcomes.flatMap(({ tookMs }) => tookMs), failed: outcomes.flatMap(({ failed }) => failed) };
}

function figures({ tookMs, failed }: Outcome): string[] {
  const at = (share: number) => ms(quantile(tookMs, share));
  return [`${tookMs.length} done`, `${failed.length} failed`, `p50 ${at(0.5)}`, `p99 ${at(0.99)}`];
}
