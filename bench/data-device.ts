/**
 * A device with one agent and one tunnel. Prints {address} of its API; SIGUSR2 prints {bytes, packets, since, state, secondGateway, counted}: what the
 * device of this namespace has sent and received, with IP headers, and the agent's session. Argument: JSON, see
 * {@link MeasuredDevice}.
 */
import { readFileSync } from 'node:fs';
import { createTunnel, startAgentProcess, untilReady } from './support/agent.ts';
import { temporaryFolder } from './support/folders.ts';

export interface MeasuredDevice {
  upstreamPort: number;
  env: Record<string, string>;
}

export interface DeviceReading {
  bytes: number;
  packets: number;
  since: string;
  state: string;
  /** Where the agent has its second session; null: it has one. */
  secondGateway: string | null;
  /** What the agent has counted for its data budget; null without one. */
  counted: number | null;
}

const { upstreamPort, env } = JSON.parse(process.argv[2] ?? '') as MeasuredDevice;
const agent = await startAgentProcess(temporaryFolder(), env);
await untilReady(agent);
await createTunnel(agent, 'device.localhost', upstreamPort);
console.log(JSON.stringify({ address: agent.api }));

/** Of all interfaces but loopback: bytes and packets, received and sent. */
function counted(): { bytes: number; packets: number } {
  const total = { bytes: 0, packets: 0 };
  for (const line of readFileSync('/proc/net/dev', 'utf8').split('\n')) {
    const [, name, figures = ''] = /^\s*([^\s:]+):\s*(.*)$/.exec(line) ?? [];
    if (name === undefined || name === 'lo') continue;
    const [received = 0, packetsIn = 0, , , , , , , sent = 0, packetsOut = 0] = figures.split(/\s+/).map(Number);
    total.bytes += received + sent;
    total.packets += packetsIn + packetsOut;
  }
  return total;
}

process.on('SIGUSR2', () => {
  const reading = counted();
  void fetch(`${agent.api}/status`)
    .then((response) => response.json())
    .then((status) => {
      const { session, data_budget: budget } = status as {
        session: { since: string; state: string; second_gateway?: string | null };
        data_budget?: { used_bytes: number } | null;
      };
      const counted = budget?.used_bytes ?? null;
      const { since, state, second_gateway: secondGateway = null } = session;
      console.log(JSON.stringify({ ...reading, since, state, secondGateway, counted }));
    });
});
process.once('SIGTERM', () => void agent.stop().then(() => process.exit()));
