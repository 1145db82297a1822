import { cpSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import {
  createTunnel,
  multiplyTunnels,
  sessionSince,
  startAgentProcess,
  storedTunnels,
  untilReady,
} from './support/agent.ts';
import { median, ms, quantile, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { residentMiB, startScript } from './support/process.ts';

type GatewayProcess = { sessionAddress: string; authtoken: string; caFile: string };

/** The agent's cost on a device: memory, and times to start, to restore tunnels and to create them. */
export async function benchDevice(): Promise<void> {
  const upstream = await startScript<{ port: number }>('upstream');
  const gateway = await startScript<GatewayProcess>('gateway', [temporaryFolder()]);
  const { sessionAddress, authtoken, caFile } = gateway.ready;
  const apart = { NGROK_SERVER_ADDR: sessionAddress, NGROK_AUTHTOKEN: authtoken, NGROK_CA_CERT: caFile };

  await writes(upstream.ready.port);
  const sample = await sampleFolder(upstream.ready.port);
  await recreation(sample);
  await readiness(sample, apart);
  await memory(sample, apart);

  await gateway.stop();
  await upstream.stop();
}

/** The data folder of an agent with one tunnel, created over its API. */
async function sampleFolder(port: number): Promise<string> {
  const agent = await startAgentProcess(temporaryFolder());
  await untilReady(agent);
  await createTunnel(agent, 'sample.localhost', port);
  await agent.stop();
  return agent.folder;
}

/** A copy of the data folder with so many tunnels. */
function folderWith(sample: string, count: number): string {
  const folder = temporaryFolder();
  cpSync(sample, folder, { recursive: true });
  multiplyTunnels(folder, count);
  return folder;
}

async function writes(port: number): Promise<void> {
  const agent = await startAgentProcess(temporaryFolder());
  await untilReady(agent);
  const rows: string[][] = [];
  let made = 0;
  const create = async () => {
    const before = performance.now();
    await createTunnel(agent, `write-${made++}.localhost`, port);
    return performance.now() - before;
  };
  for (const [from, count] of [
    [10, 100],
    [1000, 100],
  ] as const) {
    while (made < from) await Promise.all(Array.from({ length: Math.min(16, from - made) }, create));
    const alone: number[] = [];
    for (let i = 0; i < count; i++) alone.push(await create());
    const before = performance.now();
    for (let i = 0; i < count; i += 20) await Promise.all(Array.from({ length: 20 }, create));
    const together = count / ((performance.now() - before) / 1000);
    rows.push([
      `with ${from} tunnels`,
      `one after another: median ${ms(median(alone))}, p99 ${ms(quantile(alone, 0.99))}`,
      `20 at once: ${Math.round(together)}/s`,
    ]);
  }
  await agent.stop();
  section('durable POST /tunnels', rows);
}

async function recreation(sample: string): Promise<void> {
  const rounds: { session: number; api: number; process: number }[] = [];
  // The tunnels keep their URLs.
  const port = { GATEWAY_HTTPS_PORT: new URL(storedTunnels(sample).tunnels[0].url).port };
  for (let round = 0; round < 3; round++) {
    const agent = await startAgentProcess(folderWith(sample, 1000), port);
    const before = performance.now();
    await untilReady(agent);
    const api = performance.now() - before;
    const session = Date.now() - (await sessionSince(agent)).getTime();
    rounds.push({ session, api, process: agent.readyMs + api });
    await agent.stop();
  }
  const medianOf = (from: 'session' | 'api' | 'process') => ms(median(rounds.map((round) => round[from])));
  section('1,000 tunnels recreated after a restart, until all are online: median of 3', [
    ['from the session with the gateway', medianOf('session')],
    ['from API ready, the embedded gateway started in between', medianOf('api')],
    ['from the start of the process', medianOf('process')],
  ]);
}

async function readiness(sample: string, apart: Record<string, string>): Promise<void> {
  const rows: string[][] = [];
  for (const [label, env] of settings(apart)) {
    const rounds: number[] = [];
    for (let round = 0; round < 5; round++) {
      const agent = await startAgentProcess(folderWith(sample, 100), env);
      rounds.push(agent.readyMs);
      await agent.stop();
    }
    rows.push([label, ms(median(rounds))]);
  }
  section('start of the process to API ready, 100 tunnels persisted: median of 5', rows);
}

/** Ways to run an agent, with their settings. */
function settings(apart: Record<string, string>): [label: string, env: Record<string, string>][] {
  return [
    ['embedded gateway', {}],
    ['gateway apart', apart],
    ['gateway apart, native connector', { ...apart, AGENT_CONNECTOR: 'native' }],
  ];
}

async function memory(sample: string, apart: Record<string, string>): Promise<void> {
  const rows: string[][] = [];
  for (const [label, env] of settings(apart)) {
    for (const count of [0, 100]) {
      const agent = await startAgentProcess(folderWith(sample, count), env);
      await untilReady(agent);
      const resident: string[] = [];
      // V8 returns memory of the start when the process has been idle for a while.
      for (const seconds of [5, 45]) {
        await delay(seconds * 1_000);
        const mib = residentMiB(agent.child.process.pid);
        resident.push(mib === null ? 'unknown here' : `${mib.toFixed(1)} MiB`);
      }
      rows.push([label, `${count} tunnels`, ...resident]);
      await agent.stop();
    }
  }
  section('resident memory of the agent, 5 s and 50 s after it is ready', rows);
}
