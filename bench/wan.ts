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
  'wan-lossy': { delay: 30, rate: 20, loss: 0.5, queue: 200 },
  'wan-100mbit': { delay: 10, rate: 100, loss: 0, queue: 100 },
} satisfies Record<string, LinkOptions>;

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
  // Which packets are lost is chance: more of them say more.
  const [rounds, secondsBeside] = options.loss > 0 ? [3, 30] : [1, seconds + 2];
  // On a slow link, more bytes would take long and say the same.
  const sizes = options.loss > 0 ? [4] : options.rate > 0 ? [16] : [16, 64];
  const load = (way: Way, what: object) => runLoad(way, { path: '/', ...what }, near);
  const transfer = async (way: Way, what: object) => {
    const speeds: number[] = [];
    for (let round = 0; round < rounds; round++) {
      const { bytes, seconds: took } = await load(way, { connections: 1, requests: 1, ...what });
      speeds.push(bytes / took / 1e6);
    }
    const speed = median(speeds);
    return `${speed.toFixed(speed < 10 ? 2 : 1)} MB/s`;
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
    'beside a download p99': (way) => beside(way, { path: `/bytes/${ENDLESS}` }),
    'beside an upload p99': (way) => beside(way, { path: '/', upload: ENDLESS }),
  };
  const beside = async (way: Way, bulk: object) => {
    const { host, port, name, tls } = way;
    const endless = { host, port, name, tls, connections: 1, requests: 1, unattended: true, ...bulk };
    const other = await startScript('load', [JSON.stringify(endless)], near);
    await new Promise((resolve) => setTimeout(resolve, Math.max(1000, SETTLE * roundTrip)));
    const { p99 } = await load(way, { connections: 4, seconds: secondsBeside });
    await other.stop();
    return ms(p99);
  };

  const rows = ways.filter(({ label }) => isWanted('BENCH_ROWS', label)).map((way) => ({ way, cells: [way.label] }));
  const figures = Object.entries(columns).filter(([title]) => isWanted('BENCH_COLUMNS', title));
  for (const [, figure] of figures) for (const { way, cells } of rows) cells.push(await figure(way));
  section(titleOf(options), [['', ...figures.map(([title]) => title)], ...rows.map(({ cells }) => cells)]);
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

const rate = ({ requests, seconds }: LoadResult) => `${Math.round(requests / seconds)}/s`;
