import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';
import { CLI } from '../support/agent-process.ts';
import { freePorts } from '../support/free-ports.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { measured } from '../support/measured.ts';
import { NameServer } from '../support/name-server.ts';
import { NO_PEBBLE, Pebble } from '../support/pebble.ts';
import { unless } from '../support/requirements.ts';
import { seeded } from '../support/seeded.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { rounds } from './rounds.ts';

const ROUNDS = rounds({ short: 2, full: Number(process.env.ACME_ROUNDS ?? 125) });
const NAMES_A_ROUND = 8;
const SEED = Number(process.env.ACME_SEED ?? Math.floor(Math.random() * 1_000_000));
/** An order takes about two seconds, most of them between polls; it is killed at any moment of that. */
const KILLED_WITHIN_MS = 2_500;
const POLICY = { certificate_management_policy: { authority: 'letsencrypt', private_key_type: 'ecdsa' } };

it(`${ROUNDS * NAMES_A_ROUND} names get certificates with one account and hardly a further order, over kill -9 (seed ${SEED})`, {
  timeout: 120_000 + ROUNDS * 20_000,
  ...unless(NO_PEBBLE),
}, async () => {
  const random = seeded(SEED);
  const folder = temporaryFolder();
  const resolver = await NameServer.startWithTcp();
  onTestFinished(() => resolver.stop());
  const { first: dnsPort } = await freePorts(1);
  const { first: httpsPort } = await freePorts(3);
  const ca = await Pebble.start({
    resolver: resolver.address,
    ...{ httpsPort, httpPort: httpsPort + 1 },
    env: { PEBBLE_WFE_NONCEREJECT: '15', PEBBLE_AUTHZREUSE: '0' },
  });
  onTestFinished(() => ca.stop());
  writeFileSync(join(folder, 'acme-ca.pem'), ca.serverCa);
  writeFileSync(join(folder, 'root.pem'), await ca.root());
  resolver.delegate('acme.gateway.test', '127.0.0.1', dnsPort);
  resolver.cname('_acme-challenge.gateway.test', 'gateway.acme.gateway.test');
  for (const name of ['gateway.test', '*.gateway.test']) resolver.add({ type: 'A', name, data: '127.0.0.1' });

  let apiKey = '';
  const env = {
    GATEWAY_DOMAIN: 'gateway.test',
    GATEWAY_HOST: '127.0.0.1',
    GATEWAY_ACME_DIRECTORY: ca.directoryUrl,
    GATEWAY_ACME_CA_CERT: 'acme-ca.pem',
    GATEWAY_ACME_OWN_NAMES: 'public',
    GATEWAY_DNS_PORT: String(dnsPort),
    GATEWAY_DNS_RESOLVERS: resolver.address,
  };
  const ports = {
    GATEWAY_SESSION_PORT: String(httpsPort + 2),
    GATEWAY_HTTPS_PORT: String(httpsPort),
    GATEWAY_HTTP_PORT: String(httpsPort + 1),
  };
  const prepare = (store: Parameters<typeof issueApiKey>[0]) => {
    apiKey = issueApiKey(store, {}).token;
  };
  const gateway = await GatewayProcess.start(folder, env, { ports, prepare });
  onTestFinished(() => gateway.kill());
  // The gateway's names get certificates of the CA meanwhile.
  const sessionCa = `${gateway.sessionCa}\n${await ca.root()}`;
  const client = new GatewayClient(
    { apiUrl: `https://api.gateway.test:${httpsPort}`, httpsPort, sessionCa },
    '127.0.0.1',
    apiKey,
  );

  const names: string[] = [];
  let kills = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const wanted = Array.from({ length: NAMES_A_ROUND }, (_, at) => `${at === 0 ? '*.' : ''}n${at}-${round}.kill.test`);
    await Promise.all(
      wanted.map(async (domain) => {
        const { body, status } = await client.call('POST', '/reserved_domains', { domain });
        expect(status).toBe(201);
        resolver.cname(domain, String(body.cname_target));
        resolver.add({ type: 'A', name: String(body.cname_target), data: '127.0.0.1' });
        if (domain.startsWith('*.'))
          resolver.cname(`_acme-challenge.${domain.slice(2)}`, String(body.acme_challenge_cname_target));
        await client.call('PATCH', `/reserved_domains/${body.id}`, POLICY);
        names.push(domain);
      }),
    );
    await delay(random() * KILLED_WITHIN_MS);
    await gateway.restart();
    kills += 1;
  }

  const failing = async () => {
    const { body } = await client.call('GET', '/reserved_domains?limit=100&state=failing');
    return (body.reserved_domains as { domain: string; certificate_management_status: object }[]).map(
      (each) => `${each.domain} ${JSON.stringify(each.certificate_management_status)}`,
    );
  };
  const open = async () => {
    const { body } = await client.call('GET', '/reserved_domains?limit=100&state=provisioning');
    return (body.reserved_domains as unknown[]).length;
  };
  await expect.poll(open, { timeout: 300_000, interval: 500 }).toBe(0);
  expect(await failing()).toEqual([]);

  // The gateway's own commands know the root that issued.
  for (const trust of [{ GATEWAY_ACME_ROOT_CERT: 'root.pem' }, { NODE_EXTRA_CA_CERTS: join(folder, 'root.pem') }]) {
    const command = { ...env, ...ports, ...trust, PATH: process.env.PATH, DATA_DIR: join(folder, 'data') };
    const { status, stderr } = spawnSync(process.execPath, [CLI, 'gateway', 'certificates'], {
      env: command,
      cwd: folder,
    });
    expect(`${status} ${stderr}`).toBe('0 ');
  }

  const [orders, accounts] = [ca.count('Added order'), ca.count('accounts in memory')];
  // Those of the gateway's own names, which are two.
  const needed = names.length + 2;
  const issued = ca.count('Issued certificate serial');
  measured({
    fault: 'orders at a strict ACME server (Pebble), with kill -9 of the gateway at any moment',
    tried: needed,
    note: `${kills} kills, ${orders} orders, ${issued} certificates, ${accounts} account`,
  });
  expect(accounts).toBe(1);
  // A kill between the CA's answer and the commit that keeps the order costs one.
  expect(orders).toBeLessThanOrEqual(needed + kills);
  expect(issued).toBe(needed);
});
