/**
 * `npm run roads [-- files]`: how much of the source runs for one thing. For each of five, the files of `src` with a function that
 * ran, and the lines of those functions, counted by V8 in the gateway or the agent; with `files`, the files by name. A function
 * counts when it ran in each of seven rounds: what timers do in between does not.
 */
import { request } from 'node:http';
import { connect, type TLSSocket } from 'node:tls';
import { type BenchAgent, createTunnel, startAgentProcess, untilReady } from './support/agent.ts';
import { section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { FunctionCoverage, type Ran, type SourceLines, sourceLines } from './support/function-coverage.ts';
import { freePort, startChild, startScript } from './support/process.ts';

const ROUNDS = 7;
const BULK_BYTES = 16 * 1024 * 1024;
const NOTHING_LEFT = () => {};

interface GatewayReady {
  sessionAddress: string;
  authtoken: string;
  caFile: string;
  httpsPort: number;
}

const upstream = await startScript<{ port: number }>('upstream');
const gatewayInspector = await freePort();
const gateway = await startChild<GatewayReady>(
  process.execPath,
  [...inspected(gatewayInspector), new URL('./gateway.js', import.meta.url).pathname, temporaryFolder()],
  {},
  (line) => (line.startsWith('{') ? (JSON.parse(line) as GatewayReady) : undefined),
);
const atGateway = await FunctionCoverage.of(gatewayInspector);
const sdk = await startAgent('sdk');
const native = await startAgent('native');
await createTunnel(sdk.agent, 'sdk.localhost', upstream.ready.port);
await createTunnel(native.agent, 'native.localhost', upstream.ready.port);

await road('first HTTPS request on a new connection, at the gateway', [atGateway], async () => {
  const socket = await dial('sdk.localhost');
  await get(socket, 'sdk.localhost', '/');
  return () => socket.destroy();
});
const kept = await dial('sdk.localhost');
await get(kept, 'sdk.localhost', '/');
await road('second HTTPS request on a connection, at the gateway', [atGateway], async () => {
  await get(kept, 'sdk.localhost', '/');
  return NOTHING_LEFT;
});
kept.destroy();
let made = 0;
await road('POST /tunnels, on the device', [sdk.coverage], async () => {
  await createTunnel(sdk.agent, `made-${made++}.localhost`, upstream.ready.port);
  return NOTHING_LEFT;
});
await road('BIND by the SDK, at the gateway', [atGateway], async () => {
  await createTunnel(sdk.agent, `made-${made++}.localhost`, upstream.ready.port);
  return NOTHING_LEFT;
});
await road(
  '16 MiB through the native connector, at the gateway and on the device',
  [atGateway, native.coverage],
  async () => {
    const socket = await dial('native.localhost');
    await get(socket, 'native.localhost', `/bytes/${BULK_BYTES}`);
    return () => socket.destroy();
  },
);

for (const coverage of [atGateway, sdk.coverage, native.coverage]) coverage.close();
await Promise.all([sdk.agent.stop(), native.agent.stop()]);
await gateway.stop();
await upstream.stop();

function inspected(port: number): string[] {
  return [`--inspect=127.0.0.1:${port}`, '--inspect-publish-uid=http', '--expose-gc'];
}

async function startAgent(connector: 'sdk' | 'native'): Promise<{ agent: BenchAgent; coverage: FunctionCoverage }> {
  const inspector = await freePort();
  const { sessionAddress, authtoken, caFile } = gateway.ready;
  const agent = await startAgentProcess(temporaryFolder(), {
    NODE_OPTIONS: inspected(inspector).slice(0, 2).join(' '),
    AGENT_CONNECTOR: connector,
    NGROK_SERVER_ADDR: sessionAddress,
    NGROK_AUTHTOKEN: authtoken,
    NGROK_CA_CERT: caFile,
  });
  await untilReady(agent);
  return { agent, coverage: await FunctionCoverage.of(inspector) };
}

/** Measures one thing in several rounds and prints its row; what `run` returns cleans up afterwards, unmeasured. */
async function road(title: string, processes: FunctionCoverage[], run: () => Promise<() => void>): Promise<void> {
  // The first time loads what is loaded late.
  (await run())();
  const ran = processes.map((): Ran | null => null);
  for (let round = 0; round < ROUNDS; round++) {
    // What the last round left behind ends first.
    await new Promise((resolve) => setTimeout(resolve, 200));
    for (const coverage of processes) await coverage.take();
    const end = await run();
    const taken = await Promise.all(processes.map((coverage) => coverage.take()));
    end();
    taken.forEach((now, at) => {
      const before = ran[at];
      ran[at] = before ? both(before, now) : now;
    });
  }
  const files: SourceLines = new Map();
  for (const set of ran) {
    for (const [file, lines] of sourceLines(set ?? { ran: new Set(), idle: new Set() }))
      files.set(file, new Set([...(files.get(file) ?? []), ...lines]));
  }
  const total = [...files.values()].reduce((sum, lines) => sum + lines.size, 0);
  section(title, [[`${files.size} files`, `${total} lines`]]);
  if (process.argv.includes('files')) {
    section(
      '',
      [...files].sort().map(([file, lines]) => [file, String(lines.size)]),
    );
  }
}

/** What ran in both rounds; what did not run in one of them is idle. */
function both(before: Ran, now: Ran): Ran {
  const ran = new Set([...before.ran].filter((name) => now.ran.has(name)));
  const all = [...before.ran, ...now.ran, ...before.idle, ...now.idle];
  return { ran, idle: new Set(all.filter((name) => !ran.has(name))) };
}

async function dial(name: string): Promise<TLSSocket> {
  const socket = connect({
    host: '127.0.0.1',
    port: gateway.ready.httpsPort,
    servername: name,
    rejectUnauthorized: false,
  });
  await new Promise((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject));
  return socket;
}

/** Resolves when the whole response has arrived; the connection stays. */
function get(socket: TLSSocket, host: string, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    request({ createConnection: () => socket, headers: { host, connection: 'keep-alive' }, path }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`${path}: ${response.statusCode}`));
      response.resume().once('end', resolve);
    })
      .once('error', reject)
      .end();
  });
}
