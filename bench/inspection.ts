import { type BenchAgent, createTunnel, startAgentProcess, untilReady } from './support/agent.ts';
import { median, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { type Child, processorTime, startScript } from './support/process.ts';
import { requestsBy, sendRequests, type Target } from './support/requests.ts';

type GatewayProcess = { sessionAddress: string; authtoken: string; caFile: string; httpsPort: number };

interface Round {
  perSecond: number;
  /** Microseconds of processor time for a request: of the agent, and of agent, gateway and upstream together. */
  agentTime: number;
  wholeTime: number;
}

const NAME = 'inspected.localhost';
const ROUNDS = 16;
const SECONDS = 2;
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
  const rounds: Record<'off' | 'on', Round[]> = { off: [], on: [] };
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
  const of = (state: 'off' | 'on', figure: keyof Round) => median(rounds[state].map((round) => round[figure]));
  const row = (state: 'off' | 'on') => [
    state,
    `${Math.round(of(state, 'perSecond'))} requests/s`,
    `processor time per request: agent ${of(state, 'agentTime').toFixed(1)} µs, all ${of(state, 'wholeTime').toFixed(1)} µs`,
  ];
  // Neighbours in time are compared, as the speed of the machine varies.
  const change = (figure: keyof Round) => {
    const ratios = rounds.on.map((round, at) => round[figure] / (rounds.off[at]?.[figure] ?? Number.NaN));
    return `${((median(ratios) - 1) * 100).toFixed(1)} %`;
  };
  section(`traffic inspector, native connector, small GET by ${requestsBy} (median of ${ROUNDS} rounds)`, [
    row('off'),
    row('on'),
    ['change', change('perSecond'), `agent ${change('agentTime')}, all ${change('wholeTime')} (median of neighbours)`],
  ]);
  for (const child of [agent, gateway, upstream]) await child.stop();
}

/** Forgets what was captured, so that rounds without inspection do not carry its memory. */
async function inspect(agent: BenchAgent, state: 'off' | 'on'): Promise<void> {
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
  return { perSecond: requests / seconds, agentTime, wholeTime: agentTime + (spent(others) - before[1]) / requests };
}
