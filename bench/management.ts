import { readFileSync } from 'node:fs';
import { ms, quantile, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { KeepAliveClient } from './support/keep-alive-client.ts';
import { residentMiB, startScript } from './support/process.ts';

const CLIENTS = 32;
const WARM_UP_MS = 1000;
const SECONDS = 4;

interface Server {
  port: number;
  apiKey: string;
  botIds: string[];
  domainIds: string[];
}

/** The measured requests, and the required number per second and core. */
interface Operation {
  name: string;
  target: number;
  request: (n: number) => Parameters<KeepAliveClient['request']>;
}

/** The management API with few and with many rows: requests per second, latency and memory. */
export async function benchManagement(): Promise<void> {
  for (const rows of [1_000, 10_000]) await benchWith(rows);
}

async function benchWith(rows: number): Promise<void> {
  const server = await startScript<Server>('management-server', [String(rows), temporaryFolder()]);
  const { pid } = server.process;
  const resident = () => residentMiB(pid)?.toFixed(0) ?? 'unknown';
  const loaded = resident();
  const figures: string[][] = [];
  for (const operation of operations(server.ready)) figures.push(await measure(operation, server.ready, pid));
  const title = `management API, ${rows} bot users and domains, ${CLIENTS} clients`;
  section(`${title}; resident ${loaded} MiB after loading, ${resident()} MiB at the end`, figures);
  await server.stop();
}

function operations({ botIds, domainIds }: Server): Operation[] {
  const any = (ids: string[]) => ids[Math.floor(Math.random() * ids.length)];
  return [
    { name: 'get a bot user', target: 3000, request: () => ['GET', `/bot_users/${any(botIds)}`] },
    { name: 'get a domain', target: 3000, request: () => ['GET', `/reserved_domains/${any(domainIds)}`] },
    { name: 'page of 100 bot users', target: 500, request: () => ['GET', `/bot_users?before_id=${any(botIds)}`] },
    {
      name: 'page of 100 domains',
      target: 500,
      request: () => ['GET', `/reserved_domains?before_id=${any(domainIds)}`],
    },
    { name: 'durable create, bot user', target: 500, request: () => ['POST', '/bot_users', '{"name":"site"}'] },
    {
      name: 'durable create, domain',
      target: 500,
      request: (n) => ['POST', '/reserved_domains', `{"domain":"*.new${n}.example.com"}`],
    },
  ];
}

async function measure({ name, target, request }: Operation, server: Server, pid: number | undefined) {
  const headers = `Authorization: Bearer ${server.apiKey}\r\nService-Version: 2\r\n`;
  const clients = Array.from({ length: CLIENTS }, () => new KeepAliveClient(server.port, headers));
  let sent = 0;
  const run = async (client: KeepAliveClient, until: number, latencies: number[]) => {
    while (performance.now() < until) {
      sent += 1;
      const before = performance.now();
      const status = await client.request(...request(sent));
      if (status >= 300) throw new Error(`${name}: status ${status}`);
      latencies.push(performance.now() - before);
    }
  };
  const runAll = async (milliseconds: number) => {
    const latencies: number[] = [];
    const until = performance.now() + milliseconds;
    await Promise.all(clients.map((client) => run(client, until, latencies)));
    return latencies;
  };
  await runAll(WARM_UP_MS);
  const [before, cpuBefore] = [performance.now(), cpuSeconds(pid)];
  const latencies = await runAll(SECONDS * 1000);
  const seconds = (performance.now() - before) / 1000;
  const perCore = latencies.length / (cpuSeconds(pid) - cpuBefore);
  for (const client of clients) client.close();
  return [
    name,
    `${Math.round(latencies.length / seconds)}/s`,
    Number.isNaN(perCore) ? '' : `${Math.round(perCore)} per second of one core`,
    `p50 ${ms(quantile(latencies, 0.5))}`,
    `p99 ${ms(quantile(latencies, 0.99))}`,
    `target ${target}/s`,
  ];
}

/** A process's processor time so far; Linux counts hundredths of a second. NaN without /proc. */
function cpuSeconds(pid: number | undefined): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
    return (Number(fields[11]) + Number(fields[12])) / 100;
  } catch {
    return Number.NaN;
  }
}
