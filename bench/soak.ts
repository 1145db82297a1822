import { readdirSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { type Child, residentMiB, startScript } from './support/process.ts';
import { ENDPOINTS_PER_AGENT, type SoakAgents, type SoakTotals } from './support/soak-agents.ts';

type GatewayProcess = { sessionAddress: string; authtoken: string; caFile: string; httpPort: number };
type Online = { sessions: number; endpoints: number };
type Everyone = Omit<SoakAgents, 'first' | 'traffic'>;

const AGENTS = 500;
const AGENTS_PER_PROCESS = 25;
/** The processes with traffic: a tenth of all. */
const WITH_TRAFFIC = AGENTS / AGENTS_PER_PROCESS / 10;
const MINUTES = Number(process.env.SOAK_MINUTES ?? 5);
const STAY_MS = 60_000;
/** The pause between two kills of agent processes. */
const KILL_EVERY_MS = 8000;
const SAMPLE_MS = 5000;

/** 500 agents with four endpoints each that disconnect cleanly or by `kill -9`; a tenth has traffic. */
export async function benchSoak(): Promise<void> {
  const upstream = await startScript<{ port: number }>('upstream');
  const gateway = await startScript<GatewayProcess>('gateway', [temporaryFolder()]);
  const { sessionAddress: address, caFile, authtoken, httpPort } = gateway.ready;
  const upstreamPort = upstream.ready.port;
  const everyone = { address, caFile, authtoken, httpPort, upstreamPort, count: AGENTS_PER_PROCESS, stayMs: STAY_MS };

  const groups: Child<unknown>[] = [];
  for (let group = 0; group * AGENTS_PER_PROCESS < AGENTS; group++) groups.push(await startGroup(everyone, group));
  const before = await online(gateway);
  const { samples, kills } = await soak(gateway, groups, everyone);

  const tallies = await Promise.all(groups.slice(0, WITH_TRAFFIC).map(endGroup));
  await Promise.all(groups.slice(WITH_TRAFFIC).map((group) => group.stop()));
  await delay(2000);
  report(before, await online(gateway), samples, kills, tallies);
  await gateway.stop();
  await upstream.stop();
}

function startGroup(everyone: Everyone, group: number): Promise<Child<unknown>> {
  const agents: SoakAgents = { ...everyone, first: group * AGENTS_PER_PROCESS, traffic: group < WITH_TRAFFIC };
  return startScript('soak-agents', [JSON.stringify(agents)]);
}

interface Sample {
  residentMiB: number;
  descriptors: number;
}

async function soak(gateway: Child<GatewayProcess>, groups: Child<unknown>[], everyone: Everyone) {
  const samples: Sample[] = [];
  const end = performance.now() + MINUTES * 60_000;
  let nextKill = performance.now() + KILL_EVERY_MS;
  let kills = 0;
  while (performance.now() < end) {
    await delay(SAMPLE_MS);
    samples.push(sample(gateway.process.pid));
    if (performance.now() < nextKill) continue;
    nextKill += KILL_EVERY_MS;
    kills += 1;
    const victim = WITH_TRAFFIC + Math.floor(Math.random() * (groups.length - WITH_TRAFFIC));
    groups[victim]?.process.kill('SIGKILL');
    groups[victim] = await startGroup(everyone, victim);
  }
  return { samples, kills };
}

function sample(pid: number | undefined): Sample {
  return { residentMiB: residentMiB(pid) ?? 0, descriptors: readdirSync(`/proc/${pid}/fd`).length };
}

async function endGroup(group: Child<unknown>): Promise<SoakTotals> {
  const line = group.nextLine();
  await group.stop();
  return JSON.parse(await line) as SoakTotals;
}

/** The gateway's current resources. */
async function online(gateway: Child<GatewayProcess>): Promise<Online> {
  const line = gateway.nextLine();
  gateway.process.kill('SIGUSR2');
  return JSON.parse(await line) as Online;
}

function report(before: Online, after: Online, samples: Sample[], kills: number, tallies: SoakTotals[]): void {
  const half = samples.slice(samples.length / 2);
  const memory = half.map(({ residentMiB }) => residentMiB);
  const [least, most] = [Math.min(...memory), Math.max(...memory)];
  const lost = tallies.flatMap((counters) => counters.lost);
  const sum = (of: 'requests' | 'reconnects') => tallies.reduce((total, counters) => total + counters[of], 0);
  section(`soak of ${MINUTES} min: ${AGENTS} agents × ${ENDPOINTS_PER_AGENT} endpoints, flapping`, [
    ['online at the start', `${before.sessions} sessions, ${before.endpoints} endpoints`],
    ['requests to live endpoints', `${sum('requests')}, lost: ${lost.length}`],
    ['reconnects of agents with traffic', String(sum('reconnects'))],
    ['kill -9 of 25 agents each', String(kills)],
    ['resident memory, second half', `${least.toFixed(0)}–${most.toFixed(0)} MiB (${percent(most / least)})`],
    ['descriptors at the end', String(samples.at(-1)?.descriptors)],
    ['left when all agents had gone', `${after.sessions} sessions, ${after.endpoints} endpoints`],
  ]);
  for (const line of lost.slice(0, 10)) console.log(`  lost: ${line}`);
}

function percent(ratio: number): string {
  return `+${((ratio - 1) * 100).toFixed(1)} %`;
}
