/**
 * SDK agents with one endpoint each, which reconnect by themselves. Arguments: JSON, see {@link ClusterAgents}. Prints {agents}
 * when all are online.
 */
import { readFileSync } from 'node:fs';
import { SessionBuilder } from '@ngrok/ngrok';

export interface ClusterAgents {
  address: string;
  caFile: string;
  authtoken: string;
  upstreamPort: number;
  /** Number of its first agent. */
  first: number;
  count: number;
}

const { address, caFile, authtoken, upstreamPort, first, count } = JSON.parse(process.argv[2] ?? '{}') as ClusterAgents;
const ca = readFileSync(caFile);
for (let agent = first; agent < first + count; agent++) {
  const session = await new SessionBuilder().serverAddr(address).caCert(ca).authtoken(authtoken).connect();
  const endpoint = session.httpEndpoint().scheme('HTTP').domain(`agent-${agent}.localhost`);
  void (await endpoint.listen(false)).forward(`http://127.0.0.1:${upstreamPort}`);
}
console.log(JSON.stringify({ agents: count }));
