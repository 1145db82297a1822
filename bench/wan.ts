import { setTimeout as sleep } from 'node:timers/promises';
import { isWanted, median, ms, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { type Link, type LinkOptions, startLink } from './support/link.ts';
import { startFrp, startRathole } from './support/peer-tunnels.ts';
import { startScript } from './support/process.ts';
import { type LoadResult, runLoad, type Target } from './support/requests.ts';
import { startSshTunnel } from './support/ssh-tunnel.ts';
import type { DeviceAgents } from './wan-device.ts';

const CONNECTORS: DeviceAgents['connectors'] = [
  { name: 'sdk', env: {} },
  { name: 'native', env: { AGENT_CONNECTOR: 'native' } },
];

const FAST = { rate: 0, loss: 0, queue: 1000 };
/** Links by the name of their benchmark. */
export const WAN_PROFILES = {
  'wan-20': { ...FAST, delay: 10 },
  'wan-100': { ...FAST, delay: 50 },
  'wan-300': { ...FAST, delay: 150 },
  'wan-100mbit': { delay: 10, rate: 100, loss: 0, queue: 100 },
} satisfies Record<string, LinkOptions>;
const LOSSES = [0.5, 1, 5, 20];

const MIB = 1024 * 1024;
/** More than any link here carries while it is measured. */
const ENDLESS = 4e9;
/** Until a transfer has reached its speed, in round trips. */
const SETTLE = 20;

/** One path to the upstream. */
interface Way extends Target {
  label: string;
}

type Figure = (way: Way) => Promise<string>;

/** Throughput and latency over a link with delay: the gateway with each connector, and other tunnels. */
export async function benchWan(options: LinkOptions): Promise<void> {
  const link = await startLink(options);
  const { gateway: near, device } = link;
  const roundTrip = 2 * options.delay;
  const upstream = await startScript<{ port: number }>('upstream', [], device);
  const { ways, stop } = await startWays(link, upstream.ready.port);

  // Long enough for percentiles of small requests, one after another.
  const seconds = Math.max(3, (30 * roundTrip) / 1000);
  // On a slow link, more bytes would take long and say the same.
  const sizes = options.rate > 0 ? [16] : [16, 64];
  const load = (way: Way, what: object) => runLoad(way, { path: '/', ...what }, near);
  const transfer = async (way: Way, what: object) => {
    const { bytes, seconds: took } = await load(way, { connections: 1, requests: 1, ...what });
    return speedText(bytes / took);
  };
  const columns: Record<string, Figure> = {
    'cold first byte': async (way) => ms((await load(way, { connections: 4, requests: 4 })).p50),
    'one after another p50': async (way) => ms((await load(way, { connections: 1, seconds })).p50),
    '32 connections': async (way) => rate(await load(way, { connections: 32, seconds })),
    ...Object.fromEntries(
      sizes.flatMap((size): [string, Figure][] => [
        [`${size} MiB down`, (way) => transfer(way, { path: `/bytes/${size * MIB}` })],
        [`${size} MiB up`, (way) => transfer(way, { upload: size * MIB })],
      ]),
    ),
    'beside a download p99': async (way) => ms(await beside(way, DOWNLOAD, places)),
    'beside an upload p99': async (way) => ms(await beside(way, UPLOAD, places)),
  };
  const places = { near, roundTrip, seconds: seconds + 2 };

  const rows = ways.filter(({ label }) => isWanted('BENCH_ROWS', label)).map((way) => ({ way, cells: [way.label] }));
  const figures = Object.entries(columns).filter(([title]) => isWanted('BENCH_COLUMNS', title));
  for (const [, figure] of figures) for (const { way, cells } of rows) cells.push(await figure(way));
  section(titleOf(options), [['', ...figures.map(([title]) => title)], ...rows.map(({ cells }) => cells)]);
  await stop();
  await upstream.stop();
  await link.stop();
}

const DOWNLOAD = { path: `/bytes/${ENDLESS}` };
const UPLOAD = { upload: ENDLESS };

/** The 99th percentile of small requests beside a bulk transfer, in milliseconds. */
async function beside(
  way: Way,
  bulk: object,
  { near, roundTrip, seconds }: { near: Link['gateway']; roundTrip: number; seconds: number },
): Promise<number> {
  const { host, port, name, tls } = way;
  const endless = { host, port, name, tls, path: '/', connections: 1, unattended: true, tolerant: true, ...bulk };
  const other = await startScript('load', [JSON.stringify(endless)], near);
  await sleep(Math.max(1000, SETTLE * roundTrip));
  const { p99 } = await runLoad(way, { path: '/', connections: 4, seconds, tolerant: true }, near);
  await other.stop();
  return p99;
}

/** Links that lose packets, by the name of their benchmark. */
export const LOSSY_PROFILES: Record<string, LinkOptions> = Object.fromEntries(
  LOSSES.map((loss) => [`wan-lossy-${loss}`, { delay: 30, rate: 20, loss, queue: 200 }]),
);
/** Transfers are cut after so many seconds, and what has arrived counts: at 20 % of loss, 32 MiB take most of an hour. */
const LONGEST_S = 30;
const BESIDE_S = 30;
/** Which packets are lost is chance: more of them say more. */
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 5);
const TOGETHER = 8;
/** Nothing more of an upload arrives after so many milliseconds without any of it. */
const DRAINED_MS = 3000;

/** Transfers and small requests where packets are lost: medians, as ways take turns. Each round has its own link. */
export async function benchLossy(options: LinkOptions): Promise<void> {
  const taken = new Map<string, Map<string, number[]>>();
  for (let round = 0; round < ROUNDS; round++) await lossyRound(options, taken);
  const titles = Object.keys(LOSSY_FIGURES).filter((title) => isWanted('BENCH_COLUMNS', title));
  const rows = [...taken].map(([label, figures]) => [
    label,
    ...titles.map((title) => {
      const values = figures.get(title) ?? [];
      if (!title.endsWith('p99')) return `${speedText(median(values))} (${spread(values, 1e-6)})`;
      return `${ms(median(values))} (${spread(values, 1)})`;
    }),
  ]);
  section(`${titleOf(options)}, medians of ${ROUNDS} (least, most)`, [['', ...titles], ...rows]);
}

function spread(values: number[], unit: number): string {
  const text = (value: number) => (value * unit).toFixed(unit < 1 ? 2 : 0);
  return `${text(Math.min(...values))}, ${text(Math.max(...values))}`;
}

interface LossyScene {
  near: Link['gateway'];
  roundTrip: number;
  /** Bytes that the upstream has received, by path. */
  received(): Promise<Record<string, number>>;
}

const transferDown =
  (size: number, connections = 1) =>
  async (way: Way, { near }: LossyScene) => {
    const load = {
      path: `/bytes/${size * MIB}`,
      connections,
      requests: connections,
      within: LONGEST_S,
      tolerant: true,
    };
    const { bytes, seconds } = await runLoad(way, load, near);
    return bytes / seconds;
  };
let uploads = 0;
const transferUp =
  (size: number, connections = 1) =>
  async (way: Way, { near, received }: LossyScene) => {
    const path = `/upload-${uploads++}`;
    const load = { path, upload: size * MIB, connections, requests: connections, within: LONGEST_S, tolerant: true };
    const { seconds } = await runLoad(way, load, near);
    const { [path]: bytes = 0 } = await received();
    // What has left the client arrives later, beside the next transfer.
    for (let last = -1, now = bytes; last !== now; ) {
      await sleep(DRAINED_MS);
      last = now;
      now = (await received())[path] ?? 0;
    }
    return bytes / seconds;
  };
const LOSSY_FIGURES: Record<string, (way: Way, scene: LossyScene) => Promise<number>> = {
  '4 MiB down': transferDown(4),
  '4 MiB up': transferUp(4),
  '32 MiB down': transferDown(32),
  '32 MiB up': transferUp(32),
  [`${TOGETHER} × 4 MiB down`]: transferDown(4, TOGETHER),
  [`${TOGETHER} × 4 MiB up`]: transferUp(4, TOGETHER),
  'beside a download p99': (way, scene) => beside(way, DOWNLOAD, { ...scene, seconds: BESIDE_S }),
  'beside an upload p99': (way, scene) => beside(way, UPLOAD, { ...scene, seconds: BESIDE_S }),
};

async function lossyRound(options: LinkOptions, taken: Map<string, Map<string, number[]>>): Promise<void> {
  const link = await startLink(options);
  const upstream = await startScript<{ port: number }>('upstream', [], link.device);
  const { ways, stop } = await startWays(link, upstream.ready.port);
  const received = async () => {
    upstream.process.kill('SIGUSR2');
    return JSON.parse(await upstream.nextLine()) as Record<string, number>;
  };
  const scene = { near: link.gateway, roundTrip: 2 * options.delay, received };
  for (const [title, figure] of Object.entries(LOSSY_FIGURES)) {
    if (!isWanted('BENCH_COLUMNS', title)) continue;
    for (const way of ways) {
      if (!isWanted('BENCH_ROWS', way.label)) continue;
      const figures = taken.get(way.label) ?? new Map<string, number[]>();
      taken.set(way.label, figures);
      const value = await figure(way, scene);
      figures.set(title, [...(figures.get(title) ?? []), value]);
      if (process.env.BENCH_VERBOSE) console.error(options.loss, way.label, title, value);
      // What is under way belongs to nobody's figure.
      await sleep(1000);
    }
  }
  await stop();
  await upstream.stop();
  await link.stop();
}

async function startWays({ gateway: near, device }: Link, upstreamPort: number) {
  const gateway = await startScript<GatewayProcess>('gateway', [temporaryFolder(), near.address], near);
  const { sessionAddress, authtoken, caFile } = gateway.ready;
  const env = { NGROK_SERVER_ADDR: sessionAddress, NGROK_AUTHTOKEN: authtoken, NGROK_CA_CERT: caFile };
  const agents: DeviceAgents = { upstreamPort, env, connectors: CONNECTORS };
  const ours = await startScript('wan-device', [JSON.stringify(agents)], device);
  const places = { gateway: near, device };
  const peers = [
    ['ssh -R', await startSshTunnel(upstreamPort, places)],
    ['frp', await startFrp({ ...places, upstreamPort })],
    ['rathole', await startRathole({ ...places, upstreamPort })],
  ] as const;
  const ways: Way[] = CONNECTORS.map(({ name }) => {
    const label = `device-agent, ${name}`;
    return { label, host: near.address, port: gateway.ready.httpsPort, name: `${name}.localhost`, tls: true };
  });
  for (const [label, peer] of peers) if (peer) ways.push({ label, port: peer.port, name: 'upstream', tls: false });
  const stop = async () => {
    for (const [, peer] of peers) await peer?.stop();
    await ours.stop();
    await gateway.stop();
  };
  return { ways, stop };
}

interface GatewayProcess {
  sessionAddress: string;
  authtoken: string;
  caFile: string;
  httpsPort: number;
}

function titleOf({ delay, rate, loss }: LinkOptions): string {
  const limits = [rate > 0 && `${rate} Mbit/s`, loss > 0 && `${loss} % of packets lost`].filter(Boolean);
  return `link with a round trip of ${[`${2 * delay} ms`, ...limits].join(', ')}`;
}

function speedText(bytesPerSecond: number): string {
  const speed = bytesPerSecond / 1e6;
  return `${speed.toFixed(speed < 10 ? 2 : 1)} MB/s`;
}

const rate = ({ requests, seconds }: LoadResult) => `${Math.round(requests / seconds)}/s`;
