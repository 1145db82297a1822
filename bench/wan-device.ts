/**
 * Agents on the device of the wan benchmark, one for each connector, with one tunnel each. Prints {names} of their tunnels.
 * Argument: JSON, see {@link DeviceAgents}.
 */
import { createTunnel, startAgentProcess, untilReady } from './support/agent.ts';
import { temporaryFolder } from './support/folders.ts';

export interface DeviceAgents {
  upstreamPort: number;
  /** Settings of all agents. */
  env: Record<string, string>;
  connectors: { name: string; env: Record<string, string> }[];
}

const { upstreamPort, env, connectors } = JSON.parse(process.argv[2] ?? '') as DeviceAgents;
for (const { name, env: own } of connectors) {
  const agent = await startAgentProcess(temporaryFolder(), { ...env, ...own });
  await untilReady(agent);
  await createTunnel(agent, `${name}.localhost`, upstreamPort);
}
console.log(JSON.stringify({ agents: connectors.length }));
process.once('SIGTERM', () => process.exit());
