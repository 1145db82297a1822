import { Agent, type ClientRequest, get, type IncomingMessage } from 'node:http';
import { get as getByTls } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';
import { startBalancer } from '../test/support/balancer.ts';
import { freePorts } from '../test/support/free-ports.ts';
import { PostgresServer } from '../test/support/postgres-server.ts';
import type { ClusterAgents } from './cluster-agents.ts';
import { median, ms, quantile, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { type Child, startScript } from './support/process.ts';
import { type LoadResult, requestsBy, runLoad, sendRequests, type Target } from './support/requests.ts';

type GatewayProcess = {
  sessionAddress: string;
  authtoken: string;
  caFile: string;
  httpPort: number;
  httpsPort: number;
};

const NODES = 3;
const AGENTS = Number(process.env.CLUSTER_AGENTS ?? 600);
const AGENTS_PER_PROCESS = 50;
const ROUNDS = 3;
const BULK = 256 * 1024 * 1024;
/** Agents that are not back by then are lost. */
const PATIENCE_MS = 60_000;

/** Three gateways on one PostgreSQL: what the wrong one costs, and how soon agents are back when one is killed. */
export async function benchCluster(): Promise<void> {
  const database = await PostgresServer.start();
  const upstream = await startScript<{ port: number }>('upstream');
  const gateways: Child<GatewayProcess>[] = [];
  for (let node = 0; node < NODES; node++) gateways.push(await startNode(database.url()));
  const [right, wrong] = gateways as [Child<GatewayProcess>, Child<GatewayProcess>];
  const { sessionAddress, caFile, authtoken } = right.ready;
  const sdk = await startScript('plain-endpoint', [sessionAddress, caFile, authtoken, String(upstream.ready.port)]);
  await hop(right.ready, wrong.ready);
  await together(gateways.map(({ ready }) => ready));
  await sdk.stop();
  await loss(gateways, upstream.ready.port);
  const [, ...left] = gateways;
  const all = [await startNode(database.url()), ...left];
  await lossWithTwoSessions(all, upstream.ready.port);
  for (const child of [...left, upstream]) await child.stop();
  await database.end();
}

async function startNode(databaseUrl: string): Promise<Child<GatewayProcess>> {
  const { first: httpsPort } = await freePorts(1);
  const encryptionKey = Buffer.alloc(32, 7).toString('base64');
  const options = { databaseUrl, encryptionKey, httpsPort, nodeAddress: `127.0.0.1:${httpsPort}` };
  return startScript('gateway', [temporaryFolder(), '127.0.0.1', JSON.stringify(options)]);
}

async function hop(right: GatewayProcess, wrong: GatewayProcess): Promise<void> {
  await untilServed(wrong.httpPort, 'plain.localhost');
  const ways = (['right', 'wrong'] as const).flatMap((label) => {
    const { httpPort, httpsPort } = { right, wrong }[label];
    const name = 'plain.localhost';
    const byHttp: Target = { port: httpPort, name, tls: false };
    const byHttps: Target = { port: httpsPort, name, tls: true };
    return [
      { label: `${label} node, http`, target: byHttp },
      { label: `${label} node, https`, target: byHttps },
    ];
  });
  const rows = ways.map(({ label, target }) => ({
    label,
    target,
    one: [] as number[],
    many: [] as number[],
    down: [] as number[],
    up: [] as number[],
  }));
  for (let round = 0; round < ROUNDS; round++) {
    for (const { target, one, many, down, up } of rows) {
      await sendRequests(target, 32, 1);
      const { requests, seconds } = await sendRequests(target, 32, 3);
      many.push(requests / seconds);
      one.push((await sendRequests(target, 1, 2)).p50);
      const once = { connections: 1, requests: 1 };
      down.push(rate(await runLoad(target, { path: `/bytes/${BULK}`, ...once })));
      up.push(rate(await runLoad(target, { path: '/', upload: BULK, ...once })));
    }
  }
  section(
    `requests by ${requestsBy} through the node that has the endpoint, and through another one (median of ${ROUNDS} rounds)`,
    rows.map(({ label, one, many, down, up }) => [
      label,
      `one after another: p50 ${ms(median(one))}`,
      `32 connections: ${Math.round(median(many))} requests/s`,
      `256 MiB down: ${Math.round(median(down))} MB/s  up: ${Math.round(median(up))} MB/s`,
    ]),
  );
}

/** MB per second. */
const rate = ({ bytes, seconds }: LoadResult) => bytes / seconds / 1e6;

/** All nodes serve one endpoint. */
async function together(gateways: readonly GatewayProcess[]): Promise<void> {
  const targets = gateways.map(({ httpsPort }): Target => ({ port: httpsPort, name: 'plain.localhost', tls: true }));
  const rates: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const runs = await Promise.all(targets.map((target) => sendRequests(target, 11, 3)));
    rates.push(runs.map(({ requests, seconds }) => requests / seconds).reduce((one, other) => one + other));
  }
  section(`all ${gateways.length} nodes at once, 11 connections each (median of ${ROUNDS} rounds)`, [
    ['https', `${Math.round(median(rates))} requests/s`],
  ]);
}

/** Kills a node, and asks another one for the endpoints of all agents. */
async function loss(gateways: Child<GatewayProcess>[], upstreamPort: number): Promise<void> {
  const [killed, asked] = gateways as [Child<GatewayProcess>, Child<GatewayProcess>];
  const { names, groups } = await startAgents('sdk', gateways, upstreamPort);
  for (const name of names) await untilServed(asked.ready.httpPort, name);
  const { sessions } = await stateOf(killed);
  const memory = (await Promise.all(gateways.map(stateOf))).map(({ mib }) => `${mib} MiB`);

  killed.process.kill('SIGKILL');
  const since = performance.now();
  const back = await Promise.all(
    names.map((name) =>
      untilServed(asked.ready.httpPort, name).then(
        () => performance.now() - since,
        () => Number.POSITIVE_INFINITY,
      ),
    ),
  );
  const away = back.sort((a, b) => b - a).slice(0, sessions);
  section(`kill -9 of one of ${NODES} nodes, ${AGENTS} SDK agents, ${sessions} of them at that node`, [
    ['memory of the nodes before', ...memory],
    [
      'served again by another node after',
      ...[0.5, 0.99, 1].map((share) => `${Math.round(share * 100)} %: ${ms(quantile(away, share))}`),
    ],
  ]);
  for (const group of groups) group.process.kill('SIGKILL');
}

/** Kills a node, while clients ask another one for the endpoints of all agents. */
async function lossWithTwoSessions(gateways: Child<GatewayProcess>[], upstreamPort: number): Promise<void> {
  const [killed, asked] = gateways as [Child<GatewayProcess>, Child<GatewayProcess>];
  const { names, groups } = await startAgents('native', gateways, upstreamPort);
  const port = asked.ready.httpsPort;
  for (const name of names) await untilServed(port, name, isServedByTls);
  for (let all = 0; all < 2 * AGENTS; ) {
    await delay(500);
    all = (await Promise.all(gateways.map(stateOf))).reduce((sum, { sessions }) => sum + sessions, 0);
  }
  const { sessions } = await stateOf(killed);
  const failed: number[] = [];
  let asking = true;
  let requests = 0;
  const clients = Array.from({ length: 16 }, async (_, client) => {
    for (let at = client; asking; at += 16) {
      const began = performance.now();
      if (!(await isServedByTls(port, names[at % names.length] ?? ''))) failed.push(began);
      requests += 1;
    }
  });
  await delay(2_000);
  killed.process.kill('SIGKILL');
  const killedAt = performance.now();
  await delay(10_000);
  asking = false;
  await Promise.all(clients);
  const later = failed.filter((began) => began > killedAt).map((began) => began - killedAt);
  section(
    `kill -9 of one of ${NODES} nodes, ${AGENTS} native agents with two sessions, ${sessions} of these at that node`,
    [
      [
        `of ${requests} requests to all of them by another node in 12 s`,
        `failed under way: ${failed.length - later.length}`,
        `begun afterwards: ${later.length}, the last one ${ms(Math.max(0, ...later))} after it`,
      ],
    ],
  );
  for (const group of groups) group.process.kill('SIGKILL');
}

async function startAgents(
  connector: ClusterAgents['connector'],
  gateways: Child<GatewayProcess>[],
  upstreamPort: number,
): Promise<{ names: string[]; groups: Child<unknown>[] }> {
  const { address } = await startBalancer(gateways.map(({ ready }) => ready.sessionAddress));
  const [{ ready }] = gateways as [Child<GatewayProcess>];
  const { caFile, authtoken } = ready;
  const groups: Child<unknown>[] = [];
  for (let first = 0; first < AGENTS; first += AGENTS_PER_PROCESS) {
    const count = Math.min(AGENTS_PER_PROCESS, AGENTS - first);
    const agents: ClusterAgents = { connector, address, caFile, authtoken, upstreamPort, first, count };
    groups.push(await startScript('cluster-agents', [JSON.stringify(agents)]));
  }
  return { groups, names: Array.from({ length: AGENTS }, (_, agent) => `${connector}-${agent}.localhost`) };
}

async function stateOf(gateway: Child<GatewayProcess>): Promise<{ sessions: number; mib: number }> {
  const line = gateway.nextLine();
  gateway.process.kill('SIGUSR2');
  return JSON.parse(await line) as { sessions: number; mib: number };
}

const connections = new Agent({ maxSockets: 64 });

async function untilServed(port: number, name: string, asks = isServed): Promise<void> {
  const end = performance.now() + PATIENCE_MS;
  while (!(await asks(port, name))) {
    if (performance.now() > end) throw new Error(`${name} is not served`);
    await delay(100);
  }
}

function isServed(port: number, name: string): Promise<boolean> {
  return isOk((onResponse) =>
    get({ host: '127.0.0.1', port, agent: connections, headers: { host: name }, timeout: 5_000 }, onResponse),
  );
}

/** On a connection of its own. */
function isServedByTls(port: number, name: string): Promise<boolean> {
  const tls = { servername: name, rejectUnauthorized: false, agent: false };
  return isOk((onResponse) =>
    getByTls({ host: '127.0.0.1', port, headers: { host: name }, timeout: 5_000, ...tls }, onResponse),
  );
}

function isOk(send: (onResponse: (res: IncomingMessage) => void) => ClientRequest): Promise<boolean> {
  return new Promise((resolve) => {
    const req = send((res) => resolve(res.resume().statusCode === 200));
    req.once('timeout', () => req.destroy());
    req.once('error', () => resolve(false));
  });
}
