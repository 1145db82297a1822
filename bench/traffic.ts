import { createTunnel, startAgentProcess, untilReady } from './support/agent.ts';
import { isWanted, median, ms, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { startNginx } from './support/nginx.ts';
import { type Child, processorTime, startScript } from './support/process.ts';
import { type LoadResult, requestsBy, runLoad, sendRequests, type Target } from './support/requests.ts';
import { startSshTunnel } from './support/ssh-tunnel.ts';

/** One path to the upstream. */
interface Way extends Target {
  label: string;
  /** Processes on the path whose processor time is measured: the gateway's and the agent's. */
  on?: { gateway: Child<unknown>; connector: Child<unknown> };
}

/** Microseconds of processor time per request. */
interface Cost {
  gateway: number;
  connector: number;
}

const ROUNDS = 3;
const WARM_UP = 1;
const SECONDS = 4;
const BULK = 256 * 1024 * 1024;

/** Throughput and latency through a tunnel, compared with a direct connection, nginx and `ssh -R`. */
export async function benchTraffic(): Promise<void> {
  const upstream = await startScript<{ port: number }>('upstream');
  const gateway = await startScript<{
    sessionAddress: string;
    authtoken: string;
    caFile: string;
    httpPort: number;
    httpsPort: number;
  }>('gateway', [temporaryFolder()]);
  const { sessionAddress, caFile, authtoken } = gateway.ready;
  const sdk = await startScript<{ listenMedian: number }>('plain-endpoint', [
    sessionAddress,
    caFile,
    authtoken,
    String(upstream.ready.port),
  ]);
  const agent = await startAgentProcess(temporaryFolder());
  await untilReady(agent);
  const apart = { NGROK_SERVER_ADDR: sessionAddress, NGROK_AUTHTOKEN: authtoken, NGROK_CA_CERT: caFile };
  const native = await startAgentProcess(temporaryFolder(), { ...apart, AGENT_CONNECTOR: 'native' });
  await untilReady(native);
  await createTunnel(native, 'native.localhost', upstream.ready.port);
  const embedded = new URL(await createTunnel(agent, 'bench.localhost', upstream.ready.port));
  const ssh = await startSshTunnel(upstream.ready.port);
  const nginx = await startNginx(upstream.ready.port);

  const byHttp = { port: gateway.ready.httpPort, tls: false };
  const byHttps = { port: gateway.ready.httpsPort, tls: true };
  const ways: Way[] = [
    { label: 'direct', port: upstream.ready.port, name: 'upstream', tls: false },
    ...(nginx ? [{ label: 'nginx, no tunnel', port: nginx.port, name: 'upstream', tls: false }] : []),
    ...(ssh ? [{ label: 'ssh -R', port: ssh.port, name: 'upstream', tls: false }] : []),
    { label: 'gateway apart, http', ...byHttp, name: 'plain.localhost', on: { gateway, connector: sdk } },
    { label: 'gateway apart, https', ...byHttps, name: 'plain.localhost', on: { gateway, connector: sdk } },
    {
      label: 'gateway apart, https, native agent',
      ...byHttps,
      name: 'native.localhost',
      on: { gateway, connector: native.child },
    },
    { label: 'agent, embedded, https', port: Number(embedded.port), name: embedded.hostname, tls: true },
  ];
  const policies = ['default', 'rules'].map((name) => {
    return { label: `the same, ${name} policy`, ...byHttp, name: `${name}.localhost`, on: { gateway, connector: sdk } };
  });
  await requests(ways.flatMap((way) => (way.port === gateway.ready.httpPort ? [way, ...policies] : [way])));
  await sequential(ways);
  await bulk('download', ways, { path: `/bytes/${BULK}` });
  await bulk('upload', ways, { path: '/', upload: BULK });
  await handshakes(embedded);
  section('listen() of one endpoint, SDK alone', [['median of 200', ms(sdk.ready.listenMedian)]]);

  for (const child of [agent, native, sdk, gateway, upstream]) await child.stop();
  await ssh?.stop();
  await nginx?.stop();
}

async function requests(ways: Way[]): Promise<void> {
  const costs = new Map<Way, Cost[]>(ways.map((way) => [way, []]));
  const results = await measure(ways, async (way) => {
    // Each path was idle during the others' turns: its processes must warm up again.
    await sendRequests(way, 32, WARM_UP);
    const before = spentBy(way);
    const result = await sendRequests(way, 32, SECONDS);
    const after = spentBy(way);
    const per = (part: keyof Cost) => (after[part] - before[part]) / result.requests;
    costs.get(way)?.push({ gateway: per('gateway'), connector: per('connector') });
    return result;
  });
  const rows = [...results].map(([way, runs]) => [
    way.label,
    `${Math.round(median(runs.map((run) => run.requests / run.seconds)))} requests/s`,
    `p50 ${ms(median(runs.map((run) => run.p50)))}`,
    `p99 ${ms(median(runs.map((run) => run.p99)))}`,
    ...(way.on ? [costOf(costs.get(way) ?? [])] : []),
  ]);
  section(`small GET by ${requestsBy}, keep-alive, 32 connections (median of ${ROUNDS} rounds)`, rows);
}

function spentBy({ on }: Way): Cost {
  return { gateway: processorTime(on?.gateway.process.pid), connector: processorTime(on?.connector.process.pid) };
}

function costOf(runs: readonly Cost[]): string {
  const of = (part: keyof Cost) => Math.round(median(runs.map((run) => run[part])));
  return `processor time per request: gateway ${of('gateway')} µs, connector ${of('connector')} µs`;
}

async function sequential(ways: Way[]): Promise<void> {
  const results = await measure(ways, (way) => sendRequests(way, 1, 2));
  const rows = [...results].map(([way, runs]) => [way.label, `p50 ${ms(median(runs.map((run) => run.p50)))}`]);
  section('small GET, one after another', rows);
}

async function bulk(direction: string, ways: Way[], load: object): Promise<void> {
  const results = await measure(ways, (way) => runLoad(way, { ...load, connections: 1, requests: 1 }));
  const rows = [...results].map(([way, runs]) => [
    way.label,
    `${Math.round(median(runs.map((run) => run.bytes / run.seconds / 1e6)))} MB/s`,
  ]);
  section(`${direction} of 256 MiB`, rows);
}

async function handshakes({ port, hostname }: URL): Promise<void> {
  const { ready } = await startScript<{ handshakes: number; seconds: number }>('handshakes', [
    port,
    hostname,
    '4',
    '8',
  ]);
  section('full TLS handshakes, 8 at once', [['agent, embedded', `${Math.round(ready.handshakes / ready.seconds)}/s`]]);
}

/**
 * Loads every path in turn, round after round, so that slow moments of the machine affect all of them. A first round does
 * not count: services run for months, so compiled code and mapped memory are measured.
 */
async function measure(ways: Way[], load: (way: Way) => Promise<LoadResult>): Promise<Map<Way, LoadResult[]>> {
  const wanted = ways.filter(({ label }) => isWanted('BENCH_ROWS', label));
  const results = new Map<Way, LoadResult[]>(wanted.map((way) => [way, []]));
  for (const way of wanted) await load(way);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [way, runs] of results) runs.push(await load(way));
  }
  return results;
}
