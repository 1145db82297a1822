import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, it } from 'vitest';
import { openGatewayStore } from '../../../../src/gateway/store/open-gateway-store.ts';
import { issueApiKey } from '../../../../src/gateway/store/tokens.ts';
import { rounds } from '../../../faults/rounds.ts';
import { AgentProcess } from '../../../support/agent-process.ts';
import { measured } from '../../../support/measured.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';

const CLIENTS = rounds({ short: 200, full: 1000 });
/** Responses before the gateway is killed; each client then has another write pending. */
const ANSWERS = rounds({ short: CLIENTS, full: 3 * CLIENTS });

/** Clients write concurrently over HTTPS until the gateway is killed. */
it(`kill -9 during ${CLIENTS} concurrent writes loses no acknowledged write`, async () => {
  const folder = temporaryFolder();
  const dataDir = join(folder, 'data');
  const before = openGatewayStore({ dataDir, encryptionKey: null });
  const { token } = await before.database.write(() => issueApiKey(before, {}));
  before.database.close();

  const gateway = AgentProcess.start(folder, {}, ['gateway']);
  const { https } = await gateway.logged('gateway listening');
  const agent = new Agent({ keepAlive: true, rejectUnauthorized: false, servername: 'api.localhost' });
  const answered: { id: string; hostport: string }[] = [];
  let enough = () => {};
  const answeredEnough = new Promise<void>((resolve) => {
    enough = resolve;
  });
  const write = async (client: number) => {
    for (let round = 0; ; round += 1) {
      const hostport = `c${client}-${round}.example.com:443`;
      const edge = await post(agent, Number(https), token, { hostports: [hostport], description: hostport });
      answered.push({ id: edge.id, hostport });
      if (answered.length === ANSWERS) enough();
    }
  };
  const clients = Promise.allSettled(Array.from({ length: CLIENTS }, (_, client) => write(client)));
  await Promise.race([answeredEnough, clients]);
  expect(answered.length).toBeGreaterThanOrEqual(ANSWERS);
  await gateway.end('SIGKILL');
  await clients;
  agent.destroy();

  const store = openGatewayStore({ dataDir, encryptionKey: null });
  expect(store.database.problems()).toEqual([]);
  for (const { id, hostport } of answered) {
    expect(store.tlsEdges.get(id)?.hostports).toEqual([hostport]);
    expect(store.tlsEdges.holderOf(hostport)).toBe(id);
  }
  const [counts] = store.database.all<{ edges: number; hostports: number }>(
    'SELECT (SELECT count(*) FROM tls_edges) AS edges, (SELECT count(*) FROM tls_edge_hostports) AS hostports',
  );
  expect(counts?.edges).toBe(counts?.hostports);
  const note = `all ${answered.length} acknowledged writes were stored`;
  measured({ fault: 'kill -9 of the gateway during 1,000 concurrent writes', note });
  store.database.close();
}, 300_000);

function post(agent: Agent, port: number, apiKey: string, body: object): Promise<{ id: string }> {
  const headers = {
    Host: 'api.localhost',
    Authorization: `Bearer ${apiKey}`,
    'Service-Version': '2',
    'Content-Type': 'application/json',
  };
  return new Promise((resolve, reject) => {
    request({ agent, host: '127.0.0.1', port, method: 'POST', path: '/edges/tls', headers })
      .on('response', (response) => text(response).then(JSON.parse).then(resolve, reject))
      .on('error', reject)
      .end(JSON.stringify(body));
  });
}
