/**
 * Some agents with four endpoints each, real SDK sessions that come and go at random until SIGTERM.
 * Arguments: JSON, see {@link SoakAgents}. Prints {agents} when all are up, and {@link SoakTally} at the end.
 */
import { setMaxListeners } from 'node:events';
import { readFileSync } from 'node:fs';
import { get, Agent as HttpAgent } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { type Listener, type Session, SessionBuilder } from '@ngrok/ngrok';
import { ENDPOINTS_PER_AGENT, type SoakAgents, type SoakTally } from './support/soak-agents.ts';

const { address, caFile, authtoken, httpPort, upstreamPort, first, count, traffic, stayMs } = JSON.parse(
  process.argv[2] ?? '{}',
) as SoakAgents;
const ca = readFileSync(caFile);
const connections = new HttpAgent({ keepAlive: true });
const ending = new AbortController();
setMaxListeners(0, ending.signal);
const counters: SoakTally = { requests: 0, lost: [], reconnects: 0 };

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
  // Without a session this can only fail; the SDK forgets the listener all the same.
  for (const listener of listeners) await listener.close().catch(() => {});
}

/** One agent: online for a while, with traffic if it has any, then away for a moment, and again. */
async function live(index: number, online: Online): Promise<void> {
  let current = online;
  while (!ending.signal.aborted) {
    const stay = new AbortController();
    const requests = traffic ? Array.from({ length: ENDPOINTS_PER_AGENT }, (_, i) => ask(index, i, stay.signal)) : [];
    await pause(Math.random() * 2 * stayMs, ending.signal);
    stay.abort();
    // What was sent to a live endpoint has to be answered; only then may the agent go.
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

/** @returns what is wrong with the answer, or null */
function request(name: string): Promise<string | null> {
  return new Promise((resolve) => {
    const options = { host: '127.0.0.1', port: httpPort, agent: connections, headers: { host: name }, timeout: 30_000 };
    const req = get(options, (res) => {
      res.resume();
      res.once('end', () => resolve(res.statusCode === 200 ? null : `status ${res.statusCode}`));
      res.once('error', (error) => resolve(error.message));
    });
    req.once('timeout', () => req.destroy(new Error('no answer within 30 s')));
    req.once('error', (error) => resolve(error.message));
  });
}

function nameOf(index: number, endpoint: number): string {
  return `soak-${index}-${endpoint}.localhost`;
}

/** Ends early, and without an error, when the signal aborts. */
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
