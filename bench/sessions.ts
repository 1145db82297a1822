import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { GATEWAY_SERVICE } from '../src/service/service.ts';
import { freePorts } from '../test/support/free-ports.ts';
import type { SessionClients } from './session-clients.ts';
import { median, ms, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { fillGateway } from './support/full-gateway.ts';
import { type Child, processorTime, startChild, startScript } from './support/process.ts';

/** Sessions of a round; a gateway takes 1,000. */
const SESSIONS = 200;
/** Rounds after the first one, in which V8 compiles nothing as yet. */
const ROUNDS = 3;
/** After the last session, for what the server does later. */
const SETTLED_MS = 300;

interface Server {
  child: Child<unknown>;
  address: string;
  caFile: string;
  authtoken: string;
}

const WAYS: { label: string; kind: SessionClients['kind']; start: () => Promise<Server> }[] = [
  { label: 'bare TLS server', kind: 'bare', start: startBare },
  { label: 'session by the SDK', kind: 'sdk', start: startProgram },
  { label: 'session by the native connector', kind: 'native', start: startProgram },
  { label: 'native reconnect', kind: 'native reconnecting', start: startProgram },
];

/** Processor time that a new session with one endpoint takes of the gateway, beside TLS connections of a plain server. */
export async function benchSessions(): Promise<void> {
  const ways = await Promise.all(
    WAYS.map(async ({ label, kind, start }) => {
      const { child, ...server } = await start();
      const options: SessionClients = { kind, count: SESSIONS, ...server };
      const clients = await startScript('session-clients', [JSON.stringify(options)]);
      return { label, server: child, clients, costs: [] as number[] };
    }),
  );
  for (let round = 0; round <= ROUNDS; round++)
    for (const { server, clients, costs } of ways) costs.push(await costOf(server, clients));
  const [bare] = ways;
  const rows = ways.map(({ label, costs: [first = 0, ...later] }) => {
    const [ofFirst, ofLater] = [first / (bare?.costs[0] ?? 0), median(later) / median(bare?.costs.slice(1) ?? [])];
    return [
      label,
      ms(median(later)),
      `× ${ofLater.toFixed(2)}`,
      `the first ${SESSIONS}: ${ms(first)}`,
      `× ${ofFirst.toFixed(2)}`,
    ];
  });
  section(`processor time of the server for a connection (median of ${ROUNDS} rounds of ${SESSIONS})`, rows);
  for (const { server, clients } of ways) for (const child of [clients, server]) await child.stop();
}

/** Milliseconds for each connection of a round, after which all are closed. */
async function costOf(server: Child<unknown>, clients: Child<unknown>): Promise<number> {
  const before = processorTime(server.process.pid);
  await turn(clients);
  await delay(SETTLED_MS);
  const cost = (processorTime(server.process.pid) - before) / 1000 / SESSIONS;
  await turn(clients);
  await delay(SETTLED_MS);
  return cost;
}

async function turn(clients: Child<unknown>): Promise<void> {
  const done = clients.nextLine();
  clients.process.kill('SIGUSR2');
  await done;
}

async function startBare(): Promise<Server> {
  const child = await startScript<{ address: string; caFile: string }>('bare-tls', [temporaryFolder()]);
  return { child, authtoken: '', ...child.ready };
}

/** The gateway as operators start it. */
async function startProgram(): Promise<Server> {
  const folder = temporaryFolder();
  const authtoken = await fillGateway(folder, 0, 0);
  const { first } = await freePorts(3);
  const [session = '', https = '', http = ''] = [first, first + 1, first + 2].map(String);
  const cli = new URL('../../dist/cli.js', import.meta.url).pathname;
  const env = {
    ...{ DATA_DIR: folder, LOG_FORMAT: 'json' },
    ...{ GATEWAY_SESSION_PORT: session, GATEWAY_HTTPS_PORT: https, GATEWAY_HTTP_PORT: http },
  };
  const isReady = (line: string) => (line.includes('"gateway listening"') ? true : undefined);
  const command = [...GATEWAY_SERVICE.nodeOptions, cli, 'gateway'];
  const child = await startChild(process.execPath, command, env, isReady);
  return { child, authtoken, address: `127.0.0.1:${session}`, caFile: join(folder, 'gateway', 'ca.pem') };
}
