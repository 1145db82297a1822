/**
 * Agents with four endpoints each: real SDK sessions that connect and disconnect at random until SIGTERM.
 * Arguments: JSON, see {@link SoakAgents}. Prints {agents} when all are online, and {@link SoakTotals} at the end.
 */
import { setMaxListeners } from 'node:events';
import { readFileSync } from 'node:fs';
import { get, Agent as HttpAgent } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { type Listener, type Session, SessionBuilder } from '@ngrok/ngrok';
import { ENDPOINTS_PER_AGENT, type SoakAgents, type SoakTotals } from './support/soak-agents.ts';

const { address, caFile, authtoken, httpPort, upstreamPort, first, count, traffic, stayMs } = JSON.parse(
  process.argv[2] ?? '{}',
) as SoakAgents;
const ca = readFileSync(caFile);
const connections = new HttpAgent({ keepAlive: true });
const ending = new AbortController();
setMaxListeners(0, ending.signal);
const counters: SoakTotals = { requests: 0, lost: [], reconnects: 0 };

interface Online {
  session: Session;
  listeners: Listener[];
}

async function connect(index: number): Promise<Online> {
  const session = await new SessionBuilder().serverAddr(address).caCert(ca).authtoken(authtoken).connect();
  const listeners: Listener[] = [];
  for (let i = 0; i < ENDPOINTS_PER_AGENT; i++) {
    const listener = await session.httpEndpoint().scheme('HTTP').domain(nameOf(index, i)).listen(false);
    void listener.forward(`http://127.0.0.1:${upstreamPort}`);
    listeners.push(listener);
  }
  return { session, listeners };
}

async function disconnect({ session, listeners }: Online): Promise<void> {
  await session.close();
  // Fails without a session, but the SDK removes the listener in any case.
  for (const listener of listeners) await listener.close().catch(() => {});
}

/** One agent: online for a while, possibly with traffic, then offline for a moment, in a loop. */
async function live(index: number, online: Online): Promise<void> {
  let current = online;
  while (!ending.signal.aborted) {
    const stay = new AbortController();
    const requests = traffic ? Array.from({ length: ENDPOINTS_PER_AGENT }, (_, i) => ask(index, i, stay.signal)) : [];
    await pause(Math.random() * 2 * stayMs, ending.signal);
    stay.abort();
    // Requests to an online endpoint must be answered before the agent disconnects.
    await Promise.all(requests);
    await disconnect(current);
    if (ending.signal.aborted) return;
    await pause(Math.random() * 1000, ending.signal);
    current = await connect(index);
    counters.reconnects += 1;
  }
  await disconnect(current);
}

async function ask(index: number, endpoint: number, signal: AbortSignal): Promise<void> {
  const name = nameOf(index, endpoint);
  while (!signal.aborted) {
    counters.requests += 1;
    const problem = await request(name);
    if (problem !== null) counters.lost.push(`${name}: ${problem}`);
    await pause(Math.random() * 500, signal);
  }
}

/** @returns the problem with the response, or null */
function request(name: string): Promise<string | null> {
  return new Promise((resolve) => {
    const options = { host: '127.0.0.1', port: httpPort, agent: connections, headers: { host: name }, timeout: 30_000 };
    const req = get(options, (res) => {
      res.resume();
      res.once('end', () => resolve(res.statusCode === 200 ? null : `status ${res.statusCode}`));
      res.once('error', (error) => resolve(error.message));
    });
    req.once('timeout', () => req.destroy(new Error('no response within 30 s')));
    req.once('error', (error) => resolve(error.message));
  });
}

function nameOf(index: number, endpoint: number): string {
  return `soak-${index}-${endpoint}.localhost`;
}

/** Resolves early when the signal aborts. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => {});
}

const agents = Array.from({ length: count }, (_, i) => first + i);
const all: Promise<void>[] = [];
for (const index of agents) all.push(live(index, await connect(index)));
process.once('SIGTERM', () => ending.abort());
console.log(JSON.stringify({ agents: count }));
await Promise.all(all);
console.log(JSON.stringify(counters));
process.exit();
