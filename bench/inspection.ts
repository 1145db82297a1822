import { type BenchAgent, createTunnel, startAgentProcess, untilReady } from './support/agent.ts';
import { median, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { type Child, processorTime, startScript } from './support/process.ts';
import { requestsBy, sendRequests, type Target } from './support/requests.ts';

type GatewayProcess = { sessionAddress: string; authtoken: string; caFile: string; httpsPort: number };

type State = 'off' | 'on';

interface Round {
  perSecond: number;
  /** Microseconds of processor time for a request: of the agent, and of gateway and upstream. */
  agentTime: number;
  otherTime: number;
}

const NAME = 'inspected.localhost';
const ROUNDS = 20;
const SECONDS = 1.5;
const WARM_UP = 4;

/** What the traffic inspector costs: requests through an agent while its tunnel is inspected, and while it is not. */
export async function benchInspection(): Promise<void> {
  const upstream = await startScript<{ port: number }>('upstream');
  const gateway = await startScript<GatewayProcess>('gateway', [temporaryFolder()]);
  const { sessionAddress, authtoken, caFile, httpsPort } = gateway.ready;
  const apart = { NGROK_SERVER_ADDR: sessionAddress, NGROK_AUTHTOKEN: authtoken, NGROK_CA_CERT: caFile };
  const agent = await startAgentProcess(temporaryFolder(), { ...apart, AGENT_CONNECTOR: 'native' });
  await untilReady(agent);
  await createTunnel(agent, NAME, upstream.ready.port);

  const way: Target = { port: httpsPort, name: NAME, tls: true };
  const rounds: Record<State, Round[]> = { off: [], on: [] };
  for (const state of ['on', 'off'] as const) {
    await inspect(agent, state);
    await sendRequests(way, 32, WARM_UP);
  }
  for (let round = 0; round < ROUNDS; round++) {
    // Each is first as often as the other.
    for (const state of round % 2 === 0 ? (['off', 'on'] as const) : (['on', 'off'] as const)) {
      await inspect(agent, state);
      rounds[state].push(await measure(way, [agent.child, gateway, upstream]));
    }
  }
  // Gateway and upstream do the same in each round, so that their time tells how fast the machine was.
  const otherTime = median([...rounds.off, ...rounds.on].map((round) => round.otherTime));
  const perSecond = (state: State) =>
    median(rounds[state].map((each) => (each.perSecond * each.otherTime) / otherTime));
  const agentTime = (state: State) =>
    median(rounds[state].map((each) => (each.agentTime / each.otherTime) * otherTime));
  const row = (state: State) => [
    state,
    `${Math.round(perSecond(state))} requests/s`,
    `processor time per request: agent ${agentTime(state).toFixed(1)} µs, gateway and upstream ${otherTime.toFixed(1)} µs`,
  ];
  const title = `traffic inspector, native connector, small GET by ${requestsBy}`;
  section(`${title} (median of ${ROUNDS} rounds, as if the machine were equally fast in all)`, [row('off'), row('on')]);
  for (const child of [agent, gateway, upstream]) await child.stop();
}

/** Forgets what was captured, so that rounds without inspection do not carry its memory. */
async function inspect(agent: BenchAgent, state: State): Promise<void> {
  const tunnel = `${agent.api}/tunnels/inspected`;
  const headers = { 'content-type': 'application/json' };
  const calls: [path: string, init: RequestInit][] =
    state === 'on'
      ? [['inspection', { method: 'PUT', headers, body: '{}' }]]
      : [
          ['inspection', { method: 'DELETE' }],
          ['requests', { method: 'DELETE' }],
        ];
  for (const [path, init] of calls) {
    const response = await fetch(`${tunnel}/${path}`, init);
    if (!response.ok) throw new Error(`${init.method} ${path}: ${response.status} ${await response.text()}`);
    await response.arrayBuffer();
  }
}

async function measure(way: Target, [agent, ...others]: [Child<unknown>, ...Child<unknown>[]]): Promise<Round> {
  const spent = (children: Child<unknown>[]) =>
    children.reduce((sum, { process }) => sum + processorTime(process.pid), 0);
  const before = [spent([agent]), spent(others)] as const;
  const { requests, seconds } = await sendRequests(way, 32, SECONDS);
  const agentTime = (spent([agent]) - before[0]) / requests;
  return { perSecond: requests / seconds, agentTime, otherTime: (spent(others) - before[1]) / requests };
}
