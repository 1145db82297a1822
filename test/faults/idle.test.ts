import { once } from 'node:events';
import { type BigIntStats, existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { CONNECTORS } from '../support/connectors.ts';
import { startTestGateway } from '../support/gateway.ts';
import { measured } from '../support/measured.ts';
import { NO_LINUX, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';
import { persistTunnels } from './persisted-tunnels.ts';
import { rounds } from './rounds.ts';

const SECONDS = rounds({ short: 10, full: 300 });

/** Every file and folder below a folder, with all that changes when it is touched in any way but being read. */
function snapshot(folder: string): Record<string, string> {
  const paths = ['', ...(readdirSync(folder, { recursive: true }) as string[])].toSorted();
  return Object.fromEntries(paths.map((path) => [path, traces(statSync(join(folder, path), { bigint: true }))]));
}

const traces = ({ ino, size, mtimeNs, ctimeNs }: BigIntStats) => `${ino} ${size} ${mtimeNs} ${ctimeNs}`;

/** Bytes that the process sent to the storage layer since it began. */
function writtenBytes(pid: number | undefined): number {
  return Number(/^write_bytes: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1]);
}

const create = (api: string, domain: string) =>
  fetch(`${api}/tunnels`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ protocol: 'http', forwards_to: 9, domain }),
  });

/** How often the thread with the event loop has gone to sleep, and its time on a processor in milliseconds. */
function mainThread(pid: number | undefined): { wakes: number; cpuMs: number } {
  const folder = `/proc/${pid}/task/${pid}`;
  const wakes = /^voluntary_ctxt_switches:\s+(\d+)$/m.exec(readFileSync(`${folder}/status`, 'utf8'))?.[1];
  const [onCpu] = readFileSync(`${folder}/schedstat`, 'utf8').split(' ');
  return { wakes: Number(wakes), cpuMs: Number(onCpu) / 1e6 };
}

const ANSWER = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n';
/** At least one batch of upstream checks. */
const WATCHED_SECONDS = rounds({ short: 16, full: 60 });
const TUNNELS = 100;
/** Two is the promise; beside other tests, what the agent waits for comes in pieces. */
const MAX_WAKES = rounds({ short: 3, full: 2 });

it(`an idle agent with ${TUNNELS} tunnels that checks their upstreams wakes twice a second at most`, {
  timeout: 120_000 + WATCHED_SECONDS * 1_000,
  ...unless(NO_LINUX),
}, async () => {
  const gateway = await startTestGateway();
  let checks = 0;
  // One for each tunnel: addresses of the loopback.
  const upstreams = createServer((socket) => {
    checks += 1;
    socket.on('error', () => {}).once('data', () => socket.end(ANSWER));
  }).listen(0, '0.0.0.0');
  await once(upstreams, 'listening');
  const { port } = upstreams.address() as AddressInfo;
  const { authtoken, sessionAddress, caFile } = gateway;
  const env = { NGROK_AUTHTOKEN: authtoken, NGROK_SERVER_ADDR: sessionAddress, NGROK_CA_CERT: caFile };
  const agents = CONNECTORS.map((connector) => {
    const folder = temporaryFolder();
    const numbered = Array.from({ length: TUNNELS }, (_, at) => ({
      domain: `${connector}-${at + 1}.localhost`,
      forwards_to: `127.0.0.${at + 1}:${port}`,
    }));
    persistTunnels(
      folder,
      numbered.map((tunnel) => ({ ...tunnel, url: `https://${tunnel.domain}:${gateway.httpsPort}` })),
    );
    return { connector, agent: AgentProcess.start(folder, { ...env, AGENT_CONNECTOR: connector }) };
  });
  try {
    const apis = await Promise.all(agents.map(({ agent }) => agent.ready()));
    // The first check of each is more than a connection, and comes early when somebody looks.
    const areChecked = async (api: string) => {
      const tunnels = (await (await fetch(`${api}/tunnels`)).json()) as { upstream: { state: string } }[];
      return tunnels.every(({ upstream }) => upstream.state === 'answers');
    };
    for (const api of apis) await until(() => areChecked(api), 'the first checks', { withinMs: 60_000, everyMs: 500 });
    checks = 0;
    // By then, nothing of the start is left to do.
    await until(() => checks >= TUNNELS / 2, 'a batch of checks by each agent', { withinMs: 60_000, everyMs: 100 });
    const before = agents.map(({ agent }) => mainThread(agent.child.pid));
    const [began, checked] = [performance.now(), checks];
    await delay(WATCHED_SECONDS * 1_000);
    const seconds = (performance.now() - began) / 1_000;
    for (const [at, { connector, agent }] of agents.entries()) {
      const after = mainThread(agent.child.pid);
      const { wakes = 0, cpuMs = 0 } = before[at] ?? {};
      const rate = (after.wakes - wakes) / seconds;
      const share = (after.cpuMs - cpuMs) / seconds / 10;
      const note = `${rate.toFixed(2)} wake-ups a second, ${share.toFixed(3)} % of a core`;
      measured({ fault: `nothing to do with ${TUNNELS} tunnels (${connector})`, note });
      expect(rate, connector).toBeLessThanOrEqual(MAX_WAKES);
    }
    // Both agents did what they have to.
    expect(checks - checked).toBeGreaterThanOrEqual(TUNNELS / 4);
  } finally {
    for (const { agent } of agents) await agent.end();
    upstreams.close();
    await gateway.close();
  }
});

it(`an agent with 20 tunnels and its own gateway writes nothing to the disk in ${SECONDS} s without anything to do`, {
  timeout: 120_000 + SECONDS * 1_000,
  ...unless(NO_LINUX),
}, async () => {
  const folder = temporaryFolder();
  const agent = AgentProcess.start(folder);
  try {
    const api = await agent.ready();
    for (let i = 0; i < 20; i++) expect((await create(api, `idle-${i}.localhost`)).status).toBe(200);
    const addresses = join(folder, 'data/gateway/online-addresses.jsonl');
    const isWritten = () => existsSync(addresses) && readFileSync(addresses, 'utf8').includes('idle-19.localhost');
    await until(isWritten, 'the addresses that are online');
    const [before, written] = [snapshot(folder), writtenBytes(agent.child.pid)];
    await delay(SECONDS * 1_000);
    expect(snapshot(folder)).toEqual(before);
    const idle = writtenBytes(agent.child.pid) - written;
    const note = `${SECONDS} s: ${Object.keys(before).length} files untouched, ${idle} bytes written`;
    measured({ fault: 'nothing to do', note });
    expect(idle).toBe(0);
    // And the measurement would have shown it.
    await create(api, 'one-more.localhost');
    expect(snapshot(folder)).not.toEqual(before);
  } finally {
    await agent.end();
  }
});
