import { randomBytes } from 'node:crypto';
import { cpSync } from 'node:fs';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import type { Store } from '../../src/gateway/store/store.ts';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import { domainRow } from '../../test/support/domain-row.ts';
import { type BenchAgent, createTunnel, multiplyTunnels, startAgentProcess, untilReady } from './agent.ts';
import { temporaryFolder } from './folders.ts';

const SITE = 'site.example.com';

/** Fills the store of a gateway that does not run with devices that are offline, and with domains; returns an authtoken. */
export async function fillGateway(dataDir: string, devices: number, domains: number): Promise<string> {
  const store = openGatewayStore({ dataDir, encryptionKey: null });
  const authtoken = await store.database.write(() => {
    const owner_id = store.ids.next('bot');
    store.botUsers.insert({ id: owner_id, created_at: store.now(), name: SITE, active: true });
    for (let n = 0; n < devices; n++) addDevice(store, n, owner_id);
    for (let n = 0; n < domains; n++) addDomain(store, n);
    return issueCredential(store, { acl: [] }).token;
  });
  store.database.close();
  return authtoken;
}

/** A device that is offline. */
export function addDevice(store: Store, number: number, owner_id: string): void {
  const now = store.now();
  const name = `cabinet-${number}`;
  const acl = [`bind:*-${name}.${SITE}`, `bind:${name}.${SITE}`];
  const { row } = issueCredential(store, { owner_id, description: `device ${name}`, acl });
  const device = store.devices.newRow({
    id: store.ids.next('dev'),
    created_at: now,
    description: `the cabinet at kilometre ${number}`,
    name,
    site: SITE,
    owner_id,
    install_hash: randomBytes(32),
    credential_id: row.id,
    generation: 1,
    issued_generation: 1,
    status: 'enrolled',
    own_names_only: false,
    internal_names: false,
    kept_rules: [],
    labels: { road: 'A7', cabinet: String(number) },
    last_seen_at: now,
    online: false,
    last_ip: `198.51.100.${number % 256}`,
    agent_version: '0.1.0',
    history: [{ at: now, what: 'enrolled', by: `198.51.100.${number % 256}` }],
  });
  store.devices.insert(device);
}

function addDomain(store: Store, number: number): void {
  store.reservedDomains.insert(domainRow(store, `*.site${number}.example.com`, `the cameras of site ${number}`));
}

/** Starts an agent with so many tunnels to one upstream, which are online. */
export async function startFullAgent(
  tunnels: number,
  upstreamPort: number,
  env: Record<string, string>,
): Promise<BenchAgent> {
  const first = await startAgentProcess(temporaryFolder(), env);
  await untilReady(first);
  await createTunnel(first, 'sample.localhost', upstreamPort);
  await first.stop();
  const folder = temporaryFolder();
  cpSync(first.folder, folder, { recursive: true });
  multiplyTunnels(folder, tunnels);
  const agent = await startAgentProcess(folder, env);
  await untilReady(agent);
  return agent;
}
