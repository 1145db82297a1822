import { execFileSync } from 'node:child_process';
import { PostgresServer } from '../test/support/postgres-server.ts';
import type { DeviceReading, MeasuredDevice } from './data-device.ts';
import { isWanted, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { startLink } from './support/link.ts';
import { type Child, freePort, type Place, startScript } from './support/process.ts';
import { runLoad } from './support/requests.ts';

/** Packets as they are on the wire, not those that the kernel hands over in one piece. */
const LINK = { delay: 30, rate: 20, loss: Number(process.env.BENCH_LOSS ?? 0), queue: 200 };
/** The device has a session at each of two gateways, which share a database. */
const TWO_LEGS = 'native, two gateways';
const DEVICES: Record<string, Record<string, string>> = {
  native: { AGENT_CONNECTOR: 'native' },
  [TWO_LEGS]: { AGENT_CONNECTOR: 'native' },
  'native, metered': { AGENT_CONNECTOR: 'native', AGENT_LINK: 'metered' },
  'native, with a budget': { AGENT_CONNECTOR: 'native', AGENT_DATA_BUDGET: '50MB/month' },
  sdk: {},
  'sdk, metered': { AGENT_LINK: 'metered' },
};
/** Until heartbeats are as far apart as they get, and how long is then measured, in seconds. */
const SETTLE_S = Number(process.env.BENCH_SETTLE_S ?? 240);
const IDLE_S = Number(process.env.BENCH_IDLE_S ?? 300);
const REQUESTS = 1_000;
const DAY_S = 86_400;
/** A lost session is noticed and replaced within this time, in seconds. */
const PATIENCE_S = 150;
/** Until the last bytes have passed, and before the first heartbeat after a reconnect. */
const REST_S = 2;

/** Bytes on the wire of a device's network namespace, with TCP and IP headers: idle, at a reconnect, at a silent loss, at work. */
export async function benchData(): Promise<void> {
  const wanted = Object.entries(DEVICES).filter(([name]) => isWanted('BENCH_ROWS', name));
  // Each has a network of its own, and hardly anything to do.
  const rows = await Promise.all(
    wanted.map(async ([name, env]) => [name, ...(await (name === TWO_LEGS ? measureTwoLegs(env) : measure(env)))]),
  );
  const idle = `idle, a day (from ${IDLE_S} s)`;
  const columns = [
    '',
    idle,
    'reconnect',
    'silent loss: back after',
    'its bytes',
    `${REQUESTS} small requests, each`,
    'counted',
  ];
  section('bytes on the wire of a device, both directions, with TCP and IP headers', [columns, ...rows]);
}

/** Idle only: the rest costs each leg what it costs a device with one. */
async function measureTwoLegs(own: Record<string, string>): Promise<string[]> {
  const database = await PostgresServer.start();
  const link = await startLink(LINK);
  const { gateway: near, device: far } = link;
  const passage = await startScript<{ address: string }>('to-socket', [near.address, database.socketPath], near);
  const databaseUrl = database.url(passage.ready.address);
  const startNode = async () => {
    const httpsPort = await freePort();
    const encryptionKey = Buffer.alloc(32, 7).toString('base64');
    const nodeAddress = `${near.address}:${httpsPort}`;
    const more = { databaseUrl, encryptionKey, httpsPort, nodeAddress };
    return startScript<GatewayReady>('gateway', [temporaryFolder(), near.address, JSON.stringify(more)], near);
  };
  const gateways = [await startNode(), await startNode()];
  const upstream = await startScript<{ port: number }>('upstream', [], far);
  const device = await startDevice(gateways[0]?.ready as GatewayReady, upstream.ready.port, own, far);
  await seconds(SETTLE_S);
  const before = await read(device);
  if (before.secondGateway === null) throw new Error('the device has no session at a second gateway');
  await seconds(IDLE_S);
  const { bytes } = await read(device);
  for (const child of [device, upstream, ...gateways, passage]) await child.stop();
  await link.stop();
  await database.end();
  return [aDay(bytes - before.bytes), '–', '–', '–', '–', '–'];
}

function startDevice(gateway: GatewayReady, upstreamPort: number, own: Record<string, string>, at: Place) {
  const { sessionAddress, authtoken, caFile } = gateway;
  const connection = { NGROK_SERVER_ADDR: sessionAddress, NGROK_AUTHTOKEN: authtoken, NGROK_CA_CERT: caFile };
  const what: MeasuredDevice = { upstreamPort, env: { ...connection, ...own } };
  return startScript<object>('data-device', [JSON.stringify(what)], at);
}

async function measure(own: Record<string, string>): Promise<string[]> {
  const link = await startLink(LINK);
  const { gateway: near, device: far } = link;
  const gateway = await startScript<GatewayReady>('gateway', [temporaryFolder(), near.address], near);
  const upstream = await startScript<{ port: number }>('upstream', [], far);
  const { sessionAddress, httpsPort } = gateway.ready;
  const device = await startDevice(gateway.ready, upstream.ready.port, own, far);
  const port = Number(sessionAddress.split(':').at(-1));

  await seconds(SETTLE_S);
  const before = await read(device);
  await seconds(IDLE_S);
  const rested = await read(device);
  const idle = rested.bytes - before.bytes;

  const reconnect = await lose(device, near, port, 'reject with tcp reset');
  await seconds(SETTLE_S);
  const silent = await lose(device, near, port, 'drop');
  await seconds(REST_S);

  const target = { host: near.address, port: httpsPort, name: 'device.localhost', tls: true };
  const start = await read(device);
  await runLoad(target, { path: '/', connections: 1, requests: REQUESTS }, near);
  await seconds(REST_S);
  const end = await read(device);
  const each = (end.bytes - start.bytes) / REQUESTS;
  // By the agent, in place of what is on the wire.
  const ratio = (from: DeviceReading, to: DeviceReading) =>
    percent(((to.counted ?? 0) - (from.counted ?? 0)) / (to.bytes - from.bytes));
  const counted = end.counted === null ? '–' : `idle ${ratio(before, rested)}, at work ${ratio(start, end)}`;

  for (const child of [device, upstream, gateway]) await child.stop();
  await link.stop();
  return [
    aDay(idle),
    `${reconnect.bytes} B`,
    `${silent.tookS.toFixed(1)} s`,
    `${silent.bytes} B`,
    `${Math.round(each)} B`,
    counted,
  ];
}

/** Makes the present connection of the session useless, as its gateway sees it; connections that follow work. */
async function lose(device: Child<object>, gateway: Place, port: number, how: string) {
  const inside = (command: string, ...args: string[]) => {
    const [program = '', ...rest] = [...gateway.launcher, command, ...args];
    return execFileSync(program, rest, { encoding: 'utf8' });
  };
  const established = inside('ss', '-Htn', 'state', 'established', `( sport = :${port} )`).trim().split('\n');
  const peers = established.map((line) => line.trim().split(/\s+/).at(-1)?.split(':').at(-1));
  const before = await read(device);
  const began = performance.now();
  const ports = `{ ${peers.join(', ')} }`;
  inside(
    'nft',
    'add table inet lost; add chain inet lost in { type filter hook input priority 0; }; ' +
      'add chain inet lost out { type filter hook output priority 0; }; ' +
      `add rule inet lost in tcp sport ${ports} tcp dport ${port} ${how}; ` +
      `add rule inet lost out tcp dport ${ports} tcp sport ${port} tcp flags & rst == 0 drop`,
  );
  for (;;) {
    await seconds(0.25);
    const { since, state } = await read(device);
    if (state === 'online' && since !== before.since) break;
    if (performance.now() - began > PATIENCE_S * 1000) throw new Error('the device did not come back');
  }
  const tookS = (performance.now() - began) / 1000;
  await seconds(REST_S);
  const { bytes } = await read(device);
  inside('nft', 'delete table inet lost');
  return { bytes: bytes - before.bytes, tookS };
}

async function read(device: Child<object>): Promise<DeviceReading> {
  const line = device.nextLine();
  device.process.kill('SIGUSR2');
  return JSON.parse(await line) as DeviceReading;
}

/** @param idle bytes of the measured time */
const aDay = (idle: number) => `${((idle * DAY_S) / IDLE_S / 1e6).toFixed(2)} MB`;

const percent = (share: number) => `${Math.round(100 * share)} %`;

const seconds = (count: number) => new Promise((resolve) => setTimeout(resolve, count * 1000));

interface GatewayReady {
  sessionAddress: string;
  authtoken: string;
  caFile: string;
  httpsPort: number;
}
