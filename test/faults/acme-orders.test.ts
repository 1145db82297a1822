import { spawnSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';
import { CLI } from '../support/agent-process.ts';
import { startBalancer } from '../support/balancer.ts';
import { ClusterProcesses } from '../support/cluster-processes.ts';
import { clockOf, NO_FAKETIME } from '../support/faked-clock.ts';
import { freePorts } from '../support/free-ports.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { measured } from '../support/measured.ts';
import { NameServer } from '../support/name-server.ts';
import { NO_PEBBLE, Pebble } from '../support/pebble.ts';
import { NO_POSTGRES } from '../support/postgres-server.ts';
import { unless } from '../support/requirements.ts';
import { seeded } from '../support/seeded.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';
import { FULL, rounds } from './rounds.ts';

const ROUNDS = rounds({ short: 2, full: Number(process.env.ACME_ROUNDS ?? 40) });
const FAILOVERS = rounds({ short: 0, full: Number(process.env.ACME_FAILOVERS ?? 25) });
const ORDERS_A_ROUND = rounds({ short: 8, full: 25 });
/** So many of them are for names that have a certificate already. */
const AGAIN_A_ROUND = rounds({ short: 0, full: 5 });
/** So many may be open when the next ones are ordered: each kill makes those useless that the CA validates just then. */
const OPEN_MEANWHILE = 20;
const SEED = Number(process.env.ACME_SEED ?? Math.floor(Math.random() * 1_000_000));
/** An order takes about two seconds, most of them between polls; it is killed at any moment of that. */
const KILLED_WITHIN_MS = 2_500;
/** What the CA logs at each step of an order. */
const STEPS = [
  ...['POST /order-plz', 'Added order', 'POST /authZ/', 'POST /chalZ/', 'Attempting to validate', 'set VALID by'],
  ...['set INVALID by', 'POST /finalize-order/', 'Issued certificate serial', 'POST /certZ/', 'HEAD /nonce-plz'],
];
/** Seldom: the CA's resolver fails for a while when it validates a name. */
const REFUSED_SHARE = FULL ? 0.08 : 0;
const CLOCKS = ['+0d', '-1d', '+1d'];
const HARSH = FULL && NO_FAKETIME === null;
const WATCHED_A_ROUND = 3;
const ISSUED = 'Issued certificate serial';
/** The gateway's domain, and the names below. */
const OWN_NAMES = 2;

/** A strict CA that refuses 15 % of nonces. At full length, it also takes up to a second for each of its validations. */
async function startCa(ports: { httpsPort: number; httpPort: number }) {
  const resolver = await NameServer.startWithTcp();
  onTestFinished(() => resolver.stop());
  // Names below are validated by TLS-ALPN alone, others by HTTP.
  const only = 'pebble.letsencrypt.org; validationmethods=tls-alpn-01';
  resolver.add({ type: 'CAA', name: 'alpn.test', data: { tag: 'issue', value: only } });
  const slow = { PEBBLE_VA_NOSLEEP: '0', PEBBLE_VA_SLEEPTIME: '2' };
  const env = { PEBBLE_WFE_NONCEREJECT: '15', PEBBLE_AUTHZREUSE: '0', ...(FULL && slow) };
  const ca = await Pebble.start({ resolver: resolver.address, ...ports, env });
  onTestFinished(() => ca.stop());
  return { ca, resolver };
}

interface Reserved {
  id: string;
  domain: string;
  certificate: object | null;
  certificate_management_status: { provisioning_job: { error_code: string | null; msg: string } | null } | null;
}

/** Names that are ordered, some of them again and again, and watched. */
class OrderedNames {
  /** The key type of each domain's policy, by its id. */
  readonly #types = new Map<string, 'ecdsa' | 'rsa'>();
  readonly #certified = new Set<string>();
  again = 0;

  constructor(
    private readonly client: GatewayClient,
    private readonly resolver: NameServer,
    private readonly random: () => number,
  ) {}

  get count(): number {
    return this.#types.size;
  }

  async order(domain: string): Promise<void> {
    const { client, resolver, random } = this;
    const { body, status } = await client.call('POST', '/reserved_domains', { domain });
    expect(status).toBe(201);
    resolver.cname(domain, String(body.cname_target));
    resolver.add({ type: 'A', name: String(body.cname_target), data: '127.0.0.1' });
    const isWildcard = domain.startsWith('*.');
    const challenge = `_acme-challenge.${domain.slice(2)}`;
    if (isWildcard) resolver.cname(challenge, String(body.acme_challenge_cname_target));
    const asked = isWildcard ? challenge : domain;
    if (random() < REFUSED_SHARE) resolver.breakOverTcp(asked, 1 + Math.floor(random() * 12));
    await this.#setPolicy(String(body.id), 'ecdsa');
  }

  /** Orders another certificate for some of those that have one: with a key of the other type. */
  async orderAgain(wanted: number): Promise<void> {
    for (const [id, type] of this.#picked(wanted * 2)) {
      if (wanted === 0) return;
      const { certificate, certificate_management_status: now } = await this.#read(id);
      if (certificate === null || now?.provisioning_job !== null) continue;
      await this.#setPolicy(id, type === 'rsa' ? 'ecdsa' : 'rsa');
      this.again += 1;
      wanted -= 1;
    }
  }

  /** Has the gateway try those again at once that the CA has refused: on its own, it would wait for minutes. */
  async retryRefused(): Promise<void> {
    for (const { id } of await this.#in('failing')) await this.#setPolicy(id, this.#types.get(id) ?? 'ecdsa');
  }

  /** Some names that had a certificate have one that clients accept. */
  async watch(root: X509Certificate): Promise<void> {
    for (const [id] of this.#picked(WATCHED_A_ROUND)) {
      const { certificate, domain } = await this.#read(id);
      if (this.#certified.has(id)) expect(certificate, domain).not.toBeNull();
      if (certificate === null) continue;
      this.#certified.add(id);
      const presented = await this.client.presented(domain.replace('*', 'any'));
      expect(presented.issuer, domain).toContain('Pebble Intermediate');
      expect(Date.parse(presented.validFrom)).toBeLessThan(Date.now());
      expect(Date.parse(presented.validTo)).toBeGreaterThan(Date.now());
      expect(Date.parse(root.validTo)).toBeGreaterThan(Date.now());
    }
  }

  /** All have certificates, but some. */
  async settled(butFor = 0): Promise<void> {
    await expect
      .poll(
        async () => {
          await this.retryRefused();
          const open = [...(await this.#in('provisioning')), ...(await this.#in('failing'))];
          return open
            .slice(butFor)
            .map((each) => `${each.domain} ${JSON.stringify(each.certificate_management_status)}`);
        },
        { timeout: 600_000, interval: 500 },
      )
      .toEqual([]);
  }

  async #setPolicy(id: string, type: 'ecdsa' | 'rsa'): Promise<void> {
    this.#types.set(id, type);
    const policy = { authority: 'letsencrypt', private_key_type: type };
    const { status } = await this.client.call('PATCH', `/reserved_domains/${id}`, {
      certificate_management_policy: policy,
    });
    expect(status).toBe(200);
  }

  async #read(id: string): Promise<Reserved> {
    return (await this.client.call('GET', `/reserved_domains/${id}`)).body as unknown as Reserved;
  }

  async #in(state: string): Promise<Reserved[]> {
    const { body } = await this.client.call('GET', `/reserved_domains?limit=100&state=${state}`);
    return body.reserved_domains as Reserved[];
  }

  #picked(wanted: number): [id: string, type: 'ecdsa' | 'rsa'][] {
    const all = [...this.#types];
    return Array.from({ length: Math.min(wanted, all.length) }, () => {
      const at = Math.floor(this.random() * all.length);
      return all.splice(at, 1)[0] as [string, 'ecdsa' | 'rsa'];
    });
  }
}

/** @param needed certificates @param kills of gateways that ordered */
function judge(ca: Pebble, fault: string, needed: number, kills: number): void {
  const [orders, accounts] = [ca.count('Added order'), ca.count('accounts in memory')];
  const issued = ca.count(ISSUED);
  const refused = ca.count('set INVALID by invalid authz');
  const note = `${kills} kills, ${refused} validations refused, ${orders} orders, ${issued} certificates, ${accounts} account`;
  measured({ fault, tried: needed, note });
  expect(accounts).toBe(1);
  // A kill between the CA's answer and the commit that keeps the order costs one, as does a refused validation.
  expect(orders).toBeLessThanOrEqual(needed + kills + refused);
  expect(issued).toBe(needed);
}

const isRandomMoment = (random: () => number) => !FULL || random() < 0.4;

it(`${ROUNDS * ORDERS_A_ROUND} orders get certificates with one account and hardly a further order, over kill -9 (seed ${SEED})`, {
  timeout: 1_000_000 + ROUNDS * 60_000,
  ...unless(NO_PEBBLE),
}, async () => {
  const random = seeded(SEED);
  const folder = temporaryFolder();
  const { first: dnsPort } = await freePorts(1);
  const { first: httpsPort } = await freePorts(3);
  const { ca, resolver } = await startCa({ httpsPort, httpPort: httpsPort + 1 });
  writeFileSync(join(folder, 'acme-ca.pem'), ca.serverCa);
  const root = await ca.root();
  writeFileSync(join(folder, 'root.pem'), root);
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
  const clock = join(folder, 'clock');
  writeFileSync(clock, '+0d');
  const gateway = await GatewayProcess.start(folder, { ...env, ...(HARSH && clockOf(clock)) }, { ports, prepare });
  onTestFinished(() => gateway.kill());
  // The gateway's names get certificates of the CA meanwhile.
  const sessionCa = `${gateway.sessionCa}\n${root}`;
  const place = { apiUrl: `https://api.gateway.test:${httpsPort}`, httpsPort, sessionCa };
  const names = new OrderedNames(new GatewayClient(place, '127.0.0.1', apiKey), resolver, random);

  // Nobody could have the gateway try its own names again at once.
  if (FULL) await until(() => ca.count(ISSUED) === OWN_NAMES, 'certificates of its own names', { withinMs: 60_000 });
  for (let round = 0; round < ROUNDS; round += 1) {
    await names.orderAgain(AGAIN_A_ROUND);
    const isFirst = (at: number) => at === 0;
    const wanted = Array.from({ length: ORDERS_A_ROUND - AGAIN_A_ROUND }, (_, at) => {
      return `${isFirst(at) ? '*.' : ''}n${at}-${round}.${at % 2 === 1 ? 'alpn' : 'kill'}.test`;
    });
    await Promise.all(wanted.map((domain) => names.order(domain)));
    if (isRandomMoment(random)) await delay(random() * KILLED_WITHIN_MS);
    else await ca.logs(String(STEPS[round % STEPS.length]), KILLED_WITHIN_MS);
    writeFileSync(clock, String(CLOCKS[Math.floor(random() * CLOCKS.length)]));
    await gateway.restart();
    await names.watch(new X509Certificate(root));
    if (FULL) await names.settled(OPEN_MEANWHILE);
  }
  await names.settled();

  // The gateway's own commands know the root that issued.
  for (const trust of [{ GATEWAY_ACME_ROOT_CERT: 'root.pem' }, { NODE_EXTRA_CA_CERTS: join(folder, 'root.pem') }]) {
    const command = { ...env, ...ports, ...trust, PATH: process.env.PATH, DATA_DIR: join(folder, 'data') };
    const { status, stderr } = spawnSync(process.execPath, [CLI, 'gateway', 'certificates'], {
      env: command,
      cwd: folder,
    });
    expect(`${status} ${stderr}`).toBe('0 ');
  }
  const how = HARSH ? 'at any moment, and its clock a day off either way' : 'at any moment';
  const fault = `orders at a strict ACME server (Pebble), with kill -9 of the gateway ${how}`;
  judge(ca, fault, names.count + names.again + OWN_NAMES, ROUNDS);
});

/** At full length only. */
const itAtFullLength = FAILOVERS > 0 ? it : () => {};

itAtFullLength(
  `orders of a cluster go on at the other gateway, with the same account, after kill -9 (seed ${SEED})`,
  {
    timeout: 600_000 + FAILOVERS * 60_000,
    ...unless(NO_PEBBLE ?? NO_POSTGRES),
  },
  async () => {
    const random = seeded(SEED);
    const folder = temporaryFolder();
    const { first: httpsPort } = await freePorts(2);
    const { ca, resolver } = await startCa({ httpsPort, httpPort: httpsPort + 1 });
    writeFileSync(join(folder, 'acme-ca.pem'), ca.serverCa);
    for (const name of ['gateway.test', '*.gateway.test']) resolver.add({ type: 'A', name, data: '127.0.0.1' });
    const cluster = await ClusterProcesses.start(2, {
      GATEWAY_DOMAIN: 'gateway.test',
      GATEWAY_HOST: '127.0.0.1',
      GATEWAY_ACME_DIRECTORY: ca.directoryUrl,
      GATEWAY_ACME_CA_CERT: join(folder, 'acme-ca.pem'),
      GATEWAY_ACME_OWN_NAMES: 'none',
      GATEWAY_DNS_RESOLVERS: resolver.address,
    });
    const { gateways, database } = cluster;
    const balanced = async (of: (gateway: GatewayProcess) => number, port: number) => {
      const { close } = await startBalancer(
        gateways.map((each) => `127.0.0.1:${of(each)}`),
        port,
      );
      onTestFinished(close);
    };
    await balanced((each) => each.httpsPort, httpsPort);
    await balanced((each) => each.httpPort, httpsPort + 1);
    const { stdout } = await cluster.command('api-key', 'create', '--json');
    const apiKey = String((JSON.parse(stdout) as { api_key: string }).api_key);
    const place = {
      apiUrl: `https://api.gateway.test:${httpsPort}`,
      httpsPort,
      sessionCa: String(gateways[0]?.sessionCa),
    };
    const names = new OrderedNames(new GatewayClient(place, '127.0.0.1', apiKey), resolver, random);
    const placesById = new Map((await cluster.nodes()).map((node) => [node.id, cluster.placeOf(node)]));
    const primary = async () => {
      const sql = `SELECT row->>'value' AS id FROM device_agent.rows WHERE tbl = 'facts' AND key = '["primary_node"]'`;
      const [row] = await database.query<{ id: string }>(sql);
      return placesById.get(row?.id ?? '');
    };
    await until(async () => (await primary()) !== undefined, 'a primary gateway');

    for (let round = 0; round < FAILOVERS; round += 1) {
      await names.orderAgain(1);
      const wanted = Array.from({ length: 5 }, (_, at) => `f${at}-${round}.${at % 2 === 1 ? 'alpn' : 'kill'}.test`);
      await Promise.all(wanted.map((domain) => names.order(domain)));
      if (isRandomMoment(random)) await delay(random() * KILLED_WITHIN_MS);
      else await ca.logs(String(STEPS[round % STEPS.length]), KILLED_WITHIN_MS);
      const killed = (await primary()) ?? 0;
      await gateways[killed]?.kill();
      await until(async () => (await primary()) === 1 - killed, 'the other gateway is primary', { withinMs: 60_000 });
      await names.watch(new X509Certificate(await ca.root()));
      await names.retryRefused();
      await gateways[killed]?.restart();
    }
    await names.settled();
    const fault = 'orders at a strict ACME server (Pebble) of two gateways, with kill -9 of the one that orders';
    judge(ca, fault, names.count + names.again, FAILOVERS);
  },
);
