import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { recordSignIns } from '../../src/gateway/sign-in/recorded-sign-ins.ts';
import { openForChanges } from '../../src/gateway/store/open-gateway-store.ts';
import type { Store } from '../../src/gateway/store/store.ts';
import { issueApiKey, issueCredential } from '../../src/gateway/store/tokens.ts';
import { ManagementClient } from '../../src/management/client.ts';
import { startBalancer } from '../support/balancer.ts';
import { beginning } from '../support/begun-sign-in.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { NameServer } from '../support/name-server.ts';
import { PostgresServer } from '../support/postgres-server.ts';
import { firstOf, type Missing, NO_LINUX, programMissing } from '../support/requirements.ts';
import { silentLog } from '../support/silent-log.ts';

/** The address that SDKs connect to unless told otherwise is `connect.` below it. */
const DOMAIN = 'ngrok-agent.com';
/** Names that suites bind are below these, too. */
const FOREIGN_NAMES = ['ngrok.io', 'ngrok.app'];

/** A gateway, and a network in which the names that SDKs and their suites use are the gateway's. */
export interface Lab {
  domain: string;
  apiUrl: string;
  apiKey: string;
  authtoken: string;
  /** The gateway's certificate authority. */
  caFile: string;
  /** Environment of clients: credentials, and trust in the gateway's certificates. */
  env: Record<string, string>;
  close(): Promise<void>;
}

/** Why this machine cannot isolate a client; null when it can. */
export function labMissing(): Missing {
  return firstOf(NO_LINUX, programMissing('unshare', '--version'), programMissing('ip', '-V'));
}

/**
 * Runs a Node.js script in a namespace without any network but the loopback, where ports 53, 80 and 443 are free.
 *
 * @param folder for the files of the name resolution
 * @returns its exit code
 */
export async function runIsolated(folder: string, script: string, args: string[]): Promise<number> {
  writeFileSync(join(folder, 'resolv.conf'), 'nameserver 127.0.0.1\n');
  writeFileSync(join(folder, 'hosts'), '127.0.0.1 localhost\n');
  const command = `ip link set lo up && mount --bind "$0/resolv.conf" /etc/resolv.conf &&
    mount --bind "$0/hosts" /etc/hosts && exec "$@"`;
  const user = process.geteuid?.() === 0 ? [] : ['--map-root-user'];
  const namespace = ['--net', '--mount', ...user, 'sh', '-c', command, folder];
  const child = spawn('unshare', [...namespace, process.execPath, script, ...args], { stdio: 'inherit' });
  const [code] = (await once(child, 'exit')) as [number | null];
  return code ?? 1;
}

/**
 * Starts name server and gateways; inside {@link runIsolated}.
 *
 * @param settings further ones of the gateways
 * @param count several gateways share a PostgreSQL, and each connection comes to the next one
 */
export async function startLab(folder: string, settings: Record<string, string> = {}, count = 1): Promise<Lab> {
  mkdirSync(folder);
  const names = await NameServer.start('127.0.0.1', 53);
  for (const name of [DOMAIN, ...FOREIGN_NAMES].flatMap((name) => [name, `*.${name}`]))
    names.add({ type: 'A', name, data: '127.0.0.1', ttl: 0 });
  const env = { GATEWAY_DOMAIN: DOMAIN, GATEWAY_ACME_DIRECTORY: 'local', ...settings };
  const { gateway, apiKey, close } = await (count === 1 ? startOne(folder, env) : startSeveral(folder, env, count));
  const { authtoken, caFile, sessionCa: ca } = gateway;
  const apiUrl = `https://api.${DOMAIN}`;
  const { reservedDomains } = new ManagementClient({ baseUrl: apiUrl, apiKey, ca });
  for (const name of FOREIGN_NAMES) {
    const policy = { authority: 'letsencrypt', private_key_type: 'ecdsa' } as const;
    await reservedDomains.create({ domain: `*.${name}`, certificate_management_policy: policy });
  }
  return {
    domain: DOMAIN,
    apiUrl,
    apiKey,
    authtoken,
    caFile,
    env: {
      PATH: process.env.PATH ?? '',
      HOME: process.env.HOME ?? '',
      NGROK_AUTHTOKEN: authtoken,
      NGROK_API_KEY: apiKey,
      NGROK_API_BASE_URL: apiUrl,
      SSL_CERT_FILE: caFile,
      REQUESTS_CA_BUNDLE: caFile,
    },
    async close() {
      await close();
      await names.stop();
    },
  };
}

interface Gateways {
  /** One of them. */
  gateway: GatewayProcess;
  apiKey: string;
  close(): Promise<void>;
}

const PORTS = { GATEWAY_HTTPS_PORT: '443', GATEWAY_HTTP_PORT: '80' };

async function startOne(folder: string, env: Record<string, string>): Promise<Gateways> {
  let apiKey = '';
  const prepare = (store: Store) => {
    apiKey = fill(store);
  };
  const gateway = await GatewayProcess.start(folder, env, { ports: PORTS, prepare });
  return { gateway, apiKey, close: () => gateway.kill() };
}

async function startSeveral(folder: string, env: Record<string, string>, count: number): Promise<Gateways> {
  const postgres = await PostgresServer.start();
  const location = {
    dataDir: join(folder, 'preparing'),
    databaseUrl: postgres.url(),
    encryptionKey: randomBytes(32).toString('base64'),
  };
  const { store, close } = await openForChanges(location, { older: 'upgrade', log: silentLog });
  const apiKey = await store.database.write(() => fill(store));
  const { token } = await store.database.write(() => issueCredential(store, { acl: [] }));
  await close();
  const gateways: GatewayProcess[] = [];
  const hosts = Array.from({ length: count }, (_, at) => `127.0.0.${11 + at}`);
  for (const host of hosts) {
    const own = {
      ...env,
      GATEWAY_HOST: host,
      GATEWAY_NODE_ADDRESS: `${host}:443`,
      GATEWAY_TCP_PORTS: `${TCP_PORTS[0]}-${TCP_PORTS.at(-1)}`,
      GATEWAY_DATABASE_URL: location.databaseUrl,
      GATEWAY_ENCRYPTION_KEY: location.encryptionKey,
    };
    const home = join(folder, host);
    mkdirSync(home);
    gateways.push(await GatewayProcess.start(home, own, { ports: PORTS, authtoken: token }));
  }
  const balance = (port: number) =>
    startBalancer(
      hosts.map((host) => `${host}:${port}`),
      port,
    );
  const balancers = await Promise.all([...Object.values(PORTS).map(Number), ...TCP_PORTS].map(balance));
  const [gateway] = gateways;
  if (!gateway) throw new Error('no gateway');
  return {
    gateway,
    apiKey,
    async close() {
      for (const balancer of balancers) balancer.close();
      await Promise.all(gateways.map((each) => each.kill()));
      await postgres.end();
    },
  };
}

/** Of several gateways: as many as a balancer can listen to easily. */
const TCP_PORTS = Array.from({ length: 50 }, (_, at) => 20_000 + at);

/** Writes what clients find. @returns an API key */
function fill(store: Store): string {
  const record = recordSignIns(store);
  for (const subject of ['jo', 'ann']) void record(beginning({ subject }), '').written;
  return issueApiKey(store, { description: 'interop' }).token;
}
