import { createTunnel, startAgentProcess, untilReady } from './support/agent.ts';
import { median, ms, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { startNginx } from './support/nginx.ts';
import { startScript } from './support/process.ts';
import { type LoadResult, requestsBy, runLoad, sendRequests, type Target } from './support/requests.ts';
import { startSshTunnel } from './support/ssh-tunnel.ts';

/** One path to the upstream. */
interface Way extends Target {
  label: string;
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
  const embedded = new URL(await createTunnel(agent, 'bench.localhost', upstream.ready.port));
  const ssh = await startSshTunnel(upstream.ready.port);
  const nginx = await startNginx(upstream.ready.port);

  const ways: Way[] = [
    { label: 'direct', port: upstream.ready.port, name: 'upstream', tls: false },
    ...(nginx ? [{ label: 'nginx, no tunnel', port: nginx.port, name: 'upstream', tls: false }] : []),
    ...(ssh ? [{ label: 'ssh -R', port: ssh.port, name: 'upstream', tls: false }] : []),
    { label: 'gateway apart, http', port: gateway.ready.httpPort, name: 'plain.localhost', tls: false },
    { label: 'gateway apart, https', port: gateway.ready.httpsPort, name: 'plain.localhost', tls: true },
    { label: 'agent, embedded, https', port: Number(embedded.port), name: embedded.hostname, tls: true },
  ];
  const policies = ['default', 'rules'].map((name) => {
    return { label: `the same, ${name} policy`, port: gateway.ready.httpPort, name: `${name}.localhost`, tls: false };
  });
  await requests(ways.flatMap((way) => (way.port === gateway.ready.httpPort ? [way, ...policies] : [way])));
  await sequential(ways);
  await bulk('download', ways, { path: `/bytes/${BULK}` });
  await bulk('upload', ways, { path: '/', upload: BULK });
  await handshakes(embedded);
  section('listen() of one endpoint, SDK alone', [['median of 200', ms(sdk.ready.listenMedian)]]);

  for (const child of [agent, sdk, gateway, upstream]) await child.stop();
  await ssh?.stop();
  await nginx?.stop();
}

async function requests(ways: Way[]): Promise<void> {
  const results = await measure(ways, async (way) => {
    // Each path was idle during the others' turns: its processes must warm up again.
    await sendRequests(way, 32, WARM_UP);
    return sendRequests(way, 32, SECONDS);
  });
  const rows = [...results].map(([way, runs]) => [
    way.label,
    `${Math.round(median(runs.map((run) => run.requests / run.seconds)))} requests/s`,
    `p50 ${ms(median(runs.map((run) => run.p50)))}`,
    `p99 ${ms(median(runs.map((run) => run.p99)))}`,
  ]);
  section(`small GET by ${requestsBy}, keep-alive, 32 connections (median of ${ROUNDS} rounds)`, rows);
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
  const results = new Map<Way, LoadResult[]>(ways.map((way) => [way, []]));
  for (const way of ways) await load(way);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [way, runs] of results) runs.push(await load(way));
  }
  return results;
}
