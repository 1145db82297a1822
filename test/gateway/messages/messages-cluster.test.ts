import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openForChanges } from '../../../src/gateway/store/open-gateway-store.ts';
import { issueCredential } from '../../../src/gateway/store/tokens.ts';
import { FULL } from '../../faults/rounds.ts';
import { AgentProcess } from '../../support/agent-process.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { CLUSTER_KEY } from '../../support/cluster-node.ts';
import { ClusterProcesses } from '../../support/cluster-processes.ts';
import { EventReceiver } from '../../support/event-receiver.ts';
import { GatewayClient } from '../../support/gateway-client.ts';
import type { GatewayProcess } from '../../support/gateway-process.ts';
import { joinedDevice } from '../../support/joined-devices.ts';
import { measured } from '../../support/measured.ts';
import { NO_POSTGRES } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const RESTARTS = 50;
/** Longer than a message takes that should not come: after a start, conditions have to be seen for two minutes. */
const QUIET_MS = 4 * 60_000;
const LONG_MS = 40 * 60_000;
const PATIENCE = { withinMs: 10 * 60_000, everyMs: 500 };

// A quarter of an hour of a real clock each: `npm run faults -- test/gateway/messages/messages-cluster`.
const MISSING = FULL ? NO_POSTGRES : 'it takes a quarter of an hour: npm run faults';

describe('of two gateways on PostgreSQL', unless(MISSING), () => {
  it(`none reports a device that is online while its gateways are killed ${RESTARTS} times`, {
    timeout: LONG_MS,
  }, async () => {
    const { cluster, authtoken, told, note } = await startCluster();
    await startAgent(cluster, authtoken);
    for (let restarts = 0; restarts < RESTARTS; restarts++) {
      await cluster.gateways[restarts % 2]?.restart();
      await delay(Math.random() * 3_000);
    }
    note('restarted');
    await delay(QUIET_MS);
    expect(told()).toEqual([]);
    measured({ fault: 'kill -9 of two gateways in turns', tried: RESTARTS, note: 'no message about their device' });
  });

  it('one tells once that a device is offline, and once that it is back, over kill -9 of the one that tells', {
    timeout: LONG_MS,
  }, async () => {
    const { cluster, authtoken, told, note, receiver } = await startCluster();
    const agent = await startAgent(cluster, authtoken);
    await agent.end('SIGKILL');
    note('agent ended');
    // While the time of the rule runs, when the message has arrived, and afterwards.
    await delay(100_000);
    await killPrimary(cluster, note);
    await until(() => told().length > 0, 'a message that it is offline', PATIENCE);
    await killPrimary(cluster, note);
    await delay(QUIET_MS);
    expect(told()).toEqual(['begun']);

    await startAgent(cluster, authtoken);
    note('agent started');
    await delay(90_000);
    await killPrimary(cluster, note);
    await until(() => told().length > 1, 'a message that it is back', PATIENCE);
    await killPrimary(cluster, note);
    await delay(QUIET_MS);
    expect(told()).toEqual(['begun', 'over']);
    measured({
      fault: 'kill -9 of the one of two gateways that tells, while messages are due',
      tried: 4,
      note: `each message came once, ${receiver.ids.length - 2} of them again with the same id`,
    });
  });
});

/** Two gateways with a device, and whom they tell when it is offline for two minutes. */
async function startCluster() {
  const names = ['127.0.0.1'];
  const { certificatePem: cert, privateKeyPem: key } = await issueCertificate({ subject: 'CN=receiver', names });
  const receiver = new EventReceiver({ cert, key });
  await receiver.listen();
  onTestFinished(() => receiver.refuse());
  const trusted = join(temporaryFolder(), 'receiver.pem');
  writeFileSync(trusted, cert);
  const settings = { GATEWAY_POLICY_NETWORKS: '127.0.0.0/8', NODE_EXTRA_CA_CERTS: trusted };
  const cluster = await ClusterProcesses.start(2, settings);
  const authtoken = await addDevice(cluster.database.url());
  const apiKey = (await cluster.command('api-key', 'create')).stdout.trim();
  const [{ httpsPort, sessionCa }] = cluster.gateways as [GatewayProcess, GatewayProcess];
  const place = { apiUrl: `https://api.localhost:${httpsPort}`, httpsPort, sessionCa };
  const client = new GatewayClient(place, '127.0.0.1', apiKey);
  const target = { webhook: { url: receiver.url } };
  const { body } = await client.call('POST', '/event_destinations', { target });
  const rule = { conditions: ['device_offline'], after_minutes: 2, destination_ids: [String(body.id)] };
  expect((await client.call('POST', '/message_rules', rule)).status).toBe(201);
  /** What has arrived, each id once; what one id says is always the same. */
  const told = (): string[] => {
    const bodies = new Map<string, string>();
    for (const { id, body: text } of receiver.acknowledged) {
      expect(bodies.get(id) ?? text).toBe(text);
      bodies.set(id, text);
    }
    return [...bodies.values()].map((text) => String(JSON.parse(text).object.kind));
  };
  const note = (text: string) => process.stdout.write(`${new Date().toISOString()} ${text} ${told()}\n`);
  return { cluster, receiver, authtoken, told, note };
}

/** Adds a device that has joined. @returns its authtoken */
async function addDevice(databaseUrl: string): Promise<string> {
  const location = { dataDir: temporaryFolder(), encryptionKey: CLUSTER_KEY, databaseUrl };
  const { store, close } = await openForChanges(location, { older: 'refuse', log: silentLog });
  const { row, token } = await store.database.write(() => issueCredential(store, { acl: [] }));
  const device = await joinedDevice(store, { name: 'cam-1', last_seen_at: null });
  await store.database.write(() => store.devices.update({ ...device, credential_id: row.id }));
  await close();
  return token;
}

/** Starts the device's agent, until it is online. */
async function startAgent(cluster: ClusterProcesses, authtoken: string): Promise<AgentProcess> {
  const agent = AgentProcess.start(temporaryFolder(), {
    NGROK_AUTHTOKEN: authtoken,
    NGROK_SERVER_ADDR: cluster.address,
    NGROK_CA_CERT: cluster.gateways[0]?.caFile ?? '',
  });
  onTestFinished(() => agent.end('SIGKILL').then(() => {}));
  await until(async () => (await cluster.serving()).length > 0, 'the device is online', PATIENCE);
  return agent;
}

/** Kills the gateway that tells, and starts it again when the other one has taken over. */
async function killPrimary(cluster: ClusterProcesses, note: (text: string) => void): Promise<void> {
  const last = cluster.gateways.map(({ process }) =>
    process.lines.findLast(({ msg }) => msg === 'primary node changed'),
  );
  const place = last.findIndex((line) => line?.primary === true);
  const [killed, left] = [cluster.gateways[place], cluster.gateways[1 - place]];
  const from = left?.process.lines.length ?? 0;
  await killed?.kill();
  note(`killed ${place}`);
  await left?.process.logged('primary node changed', from);
  await killed?.restart();
}
