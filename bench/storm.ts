import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import { Agent, request as requestSecurely } from 'node:https';
import { getPriority, setPriority } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { openGatewayStore } from '../src/gateway/store/open-gateway-store.ts';
import { issueApiKey, issueCredential } from '../src/gateway/store/tokens.ts';
import { GATEWAY_SERVICE } from '../src/service/service.ts';
import { freePorts } from '../test/support/free-ports.ts';
import type { LightAgents } from './light-agents.ts';
import { ms, quantile, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { type Child, processorTime, residentMiB, startChild, startScript } from './support/process.ts';

/** As many as 20,000 file descriptors allow for, with little room for clients. */
const AGENTS = Number(process.env.STORM_AGENTS ?? 10_000);
const AUTHTOKENS = 20;
/** Agents in a process of their own, which has time to answer: others share one that has much to do. */
const ASKED = 50;
const IDLE_MS = 20_000;
const ASK_MS = 25;

type Progress = { online: number; sessions: number; back: number[]; failed: Record<string, number> };
interface Ports {
  session: string;
  https: string;
  http: string;
}

/**
 * What idle sessions cost a gateway, and how their agents come back when it was killed: light agents in one process, which share this
 * machine with it. Meanwhile, its API and endpoints that are back are asked for.
 */
export async function benchStorm(): Promise<void> {
  const folder = temporaryFolder();
  const { apiKey, authtokens } = await fillStore(folder);
  const { first } = await freePorts(3);
  const ports = { session: String(first), https: String(first + 1), http: String(first + 2) };
  const gateway = await startProgram(folder, ports);
  const caFile = join(folder, 'gateway', 'ca.pem');
  const options: LightAgents = { address: `127.0.0.1:${ports.session}`, caFile, authtokens, count: AGENTS };
  const agents = await startScript<Progress>('light-agents', [JSON.stringify(options)]);
  // Agents have machines of their own: theirs takes no time from the gateway and those that ask.
  setPriority(agents.process.pid ?? 0, getPriority() + 10);
  const ofAsked: LightAgents = { ...options, count: ASKED, first: AGENTS };
  const api = apiAt(Number(ports.https), readFileSync(caFile), apiKey);

  const before = processorTime(gateway.process.pid);
  const began = performance.now();
  await untilOnline(agents, AGENTS);
  const asked = await startScript<Progress>('light-agents', [JSON.stringify(ofAsked)]);
  await untilOnline(asked, ASKED);
  const connected = performance.now() - began;
  const cost = (processorTime(gateway.process.pid) - before) / 1000 / AGENTS;
  await delay(5_000);
  const idleBefore = processorTime(gateway.process.pid);
  await delay(IDLE_MS);
  const idleShare = (processorTime(gateway.process.pid) - idleBefore) / IDLE_MS / 10;
  const idle = asking(() => api());
  await delay(IDLE_MS);
  const idleTimes = await idle();
  section(`${AGENTS} light agents, one endpoint each`, [
    ['come for the first time', `${(connected / 1000).toFixed(1)} s`, `processor time for each ${ms(cost)}`],
    ['idle', `${residentMiB(gateway.process.pid)?.toFixed(0)} MiB`, `${idleShare.toFixed(1)} % of a core`],
    ['requests of the API meanwhile', ...timesOf(idleTimes)],
  ]);

  gateway.process.kill('SIGKILL');
  const killed = performance.now();
  let ready = Number.POSITIVE_INFINITY;
  const isBack: number[] = [];
  const failed = new Map<string, number>();
  const returns: number[] = [];
  const note = ({ back, failed: now }: Progress) => {
    const at = performance.now() - killed;
    returns.push(...back.map(() => at));
    // Before, nothing listens.
    if (at < ready) return;
    for (const [reason, times] of Object.entries(now)) failed.set(reason, (failed.get(reason) ?? 0) + times);
  };
  const allBack = Promise.all([
    untilBack(agents, AGENTS, note),
    untilBack(asked, ASKED, (progress) => {
      note(progress);
      isBack.push(...progress.back);
    }),
  ]);
  const next = await startProgram(folder, ports);
  ready = performance.now() - killed;
  const apiTimes = asking(() => api());
  const endpointTimes = asking(async () => {
    const number = isBack[randomInt(Math.max(1, isBack.length))];
    if (number === undefined) return Number.NaN;
    return timeOfRequest(Number(ports.http), `light-${number}.localhost`);
  });
  await allBack;
  const spent = processorTime(next.process.pid) / 1000 / AGENTS;
  section(`after kill -9, the next gateway is ready after ${(ready / 1000).toFixed(1)} s`, [
    ['back', ...[0.5, 0.99, 1].map((q) => `${q * 100} % ${(quantile(returns, q) / 1000).toFixed(1)} s`)],
    [
      'processor time for each',
      ms(spent),
      `attempts that failed: ${[...failed].map(([reason, times]) => `${times} ${reason}`).join(', ') || 'none'}`,
    ],
    ['requests of the API meanwhile', ...timesOf(await apiTimes())],
    ['requests to endpoints that are back', ...timesOf(await endpointTimes())],
  ]);
  await agents.stop();
  await asked.stop();
  await next.stop();
}

function timesOf(times: number[]): string[] {
  const answered = times.filter(Number.isFinite);
  return [0.5, 0.99, 1].map((q) => `p${q * 100} ${ms(quantile(answered, q))}`).concat(`of ${answered.length}`);
}

/** Asks again and again, also while answers are awaited. @returns ends it, with the milliseconds that each answer took */
function asking(ask: () => Promise<number>): () => Promise<number[]> {
  const asked: Promise<number>[] = [];
  const timer = setInterval(() => asked.push(ask()), ASK_MS);
  return () => {
    clearInterval(timer);
    return Promise.all(asked);
  };
}

async function untilOnline(agents: Child<Progress>, count: number): Promise<void> {
  for (;;) {
    const { online } = JSON.parse(await agents.nextLine()) as Progress;
    if (online >= count) return;
  }
}

/** Begins when a gateway was killed. */
async function untilBack(agents: Child<Progress>, count: number, note: (progress: Progress) => void): Promise<void> {
  for (let isBack = false; !isBack; ) {
    const progress = JSON.parse(await agents.nextLine()) as Progress;
    note(progress);
    isBack = progress.online >= count && progress.sessions >= 2 * count;
  }
}

/** @returns milliseconds; NaN for another status than 200 */
function timeOfRequest(port: number, host: string): Promise<number> {
  const began = performance.now();
  return new Promise((resolve) => {
    const asked = request({ host: '127.0.0.1', port, path: '/', headers: { host } }, (res) => {
      res.resume().on('end', () => resolve(res.statusCode === 200 ? performance.now() - began : Number.NaN));
    });
    asked.on('error', () => resolve(Number.NaN)).end();
  });
}

/** @returns asks for a page of sessions, and says how many milliseconds that took; NaN for an error */
function apiAt(port: number, ca: Buffer, apiKey: string): () => Promise<number> {
  const agent = new Agent({ keepAlive: true, ca });
  const host = 'api.localhost';
  const headers = { host, authorization: `Bearer ${apiKey}`, 'ngrok-version': '2' };
  const to = { agent, host: '127.0.0.1', servername: host, port, path: '/tunnel_sessions?limit=10', headers };
  return () => {
    const began = performance.now();
    return new Promise((resolve) => {
      const asked = requestSecurely(to, (res) => {
        res.resume().on('end', () => resolve(res.statusCode === 200 ? performance.now() - began : Number.NaN));
      });
      asked.on('error', () => resolve(Number.NaN)).end();
    });
  };
}

async function fillStore(folder: string): Promise<{ apiKey: string; authtokens: string[] }> {
  const store = openGatewayStore({ dataDir: folder, encryptionKey: null });
  const tokens = await store.database.write(() => ({
    apiKey: issueApiKey(store, {}).token,
    authtokens: Array.from({ length: AUTHTOKENS }, () => issueCredential(store, { acl: [] }).token),
  }));
  store.database.close();
  return tokens;
}

function startProgram(folder: string, { session, https, http }: Ports): Promise<Child<true>> {
  const cli = new URL('../../dist/cli.js', import.meta.url).pathname;
  const env = {
    ...{ DATA_DIR: folder, LOG_FORMAT: 'json', GATEWAY_API_RATE_LIMIT: '0', GATEWAY_MAX_CONNECTIONS: '200' },
    ...{ GATEWAY_SESSION_PORT: session, GATEWAY_HTTPS_PORT: https, GATEWAY_HTTP_PORT: http },
    GATEWAY_MAX_SESSIONS: String(2 * AGENTS),
  };
  const isReady = (line: string) => (line.includes('"gateway listening"') ? true : undefined);
  return startChild(process.execPath, [...GATEWAY_SERVICE.nodeOptions, cli, 'gateway'], env, isReady);
}
