/**
 * Agents with one endpoint each, which reconnect on their own. Arguments: JSON, see {@link ClusterAgents}. Prints {agents} when
 * all are online.
 */
import { readFileSync } from 'node:fs';
import { SessionBuilder } from '@ngrok/ngrok';
import { GatewayConnector } from '../src/agent/connectors/gateway-connector.ts';
import { openLink } from '../src/agent/open-link.ts';
import { NO_PROXIES } from '../src/lib/network/proxy-rules.ts';
import { systemClock } from '../src/lib/time/clock.ts';
import { upstreamAt } from '../test/support/connectors.ts';
import { silentLog } from '../test/support/silent-log.ts';

export interface ClusterAgents {
  /** `sdk`: the SDK alone; `agent`: as our agent uses it. */
  connector: 'sdk' | 'agent' | 'native';
  address: string;
  caFile: string;
  authtoken: string;
  upstreamPort: number;
  /** Number of its first agent. */
  first: number;
  count: number;
}

const options = JSON.parse(process.argv[2] ?? '{}') as ClusterAgents;
const { connector, address, caFile, authtoken, upstreamPort, first, count } = options;
const ca = readFileSync(caFile);
const upstream = `http://127.0.0.1:${upstreamPort}`;
const start = { sdk: startSdk, agent: startAgent, native: startAgent }[connector];
for (let agent = first; agent < first + count; agent++) await start(`${connector}-${agent}.localhost`);
console.log(JSON.stringify({ agents: count }));

async function startSdk(domain: string): Promise<void> {
  const session = await new SessionBuilder().serverAddr(address).caCert(ca).authtoken(authtoken).connect();
  const endpoint = session.httpEndpoint().scheme('HTTP').domain(domain);
  void (await endpoint.listen(false)).forward(upstream);
}

async function startAgent(domain: string): Promise<void> {
  const link = {
    ...{ authtoken: () => authtoken, serverAddr: address, authorities: { pem: ca.toString() }, proxies: NO_PROXIES },
    ...{ verifyUpstreamTls: true, version: 'bench', log: silentLog, clock: systemClock },
  };
  const open = () => openLink(connector === 'native' ? 'native' : 'sdk', link);
  const agent = new GatewayConnector({ clock: systemClock, log: silentLog }, address, open);
  const online = new Promise<void>((resolve) => agent.once('online', resolve));
  await agent.start();
  await online;
  const bind = async () => {
    const request = { protocol: 'http', domain, upstream: upstreamAt(upstream), forwardsTo: upstream } as const;
    const { ended } = await agent.open(request);
    void ended.then(bindAgain);
  };
  const bindAgain = () => void bind().catch(() => setTimeout(bindAgain, 200));
  await bind();
}
