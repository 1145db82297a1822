import { cp, mkdtemp, rm } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import ngrok from '@ngrok/ngrok';
import { openLocalCa } from '../../src/gateway/certificates/local-ca/local-ca.ts';
import type { GatewayOptions } from '../../src/gateway/context/gateway-options.ts';
import { type Gateway, startGateway } from '../../src/gateway/gateway.ts';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';
import { createLog } from '../../src/lib/log/log.ts';
import { ManagementClient } from '../../src/management/client.ts';
import { THROUGH_WRONG_NODE } from './edge.ts';
import { freePorts } from './free-ports.ts';
import { PostgresServer } from './postgres-server.ts';
import { silentLog } from './silent-log.ts';

/** What an agent has to know of its gateway. */
interface AgentPlace {
  readonly authtoken: string;
  readonly sessionAddress: string;
  readonly caFile: string;
}

/** A gateway on free loopback ports, with a temporary data folder. */
export interface TestGateway extends Gateway {
  /** Valid until the gateway is closed. */
  authtoken: string;
  dataDir: string;
  /** The port for agents only; 0 without one. */
  sessionPort: number;
  /** Closes the gateway and deletes its folder. */
  close(): Promise<void>;
}

/** What a gateway's certificate for agents is for. */
export const SESSION_NAMES = ['connect.localhost', '127.0.0.1', 'localhost', '::1'];

let ca: Promise<string> | null = null;

/** A temporary data folder with a CA and a certificate for agents. A copy takes half the time of making them for each test. */
export async function makeDataDir(): Promise<string> {
  ca ??= makeCa();
  const dataDir = await mkdtemp(join(tmpdir(), 'gateway-'));
  await cp(await ca, join(dataDir, 'gateway'), { recursive: true });
  return dataDir;
}

async function makeCa(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'ca-'));
  await (await openLocalCa(folder, silentLog)).issue(SESSION_NAMES);
  return folder;
}

const KEY = Buffer.alloc(32, 7).toString('base64');

/** A gateway that clients reach through another one, which shares its database and passes their connections on. */
async function startBehindWrongNode(options: GatewayOptions): Promise<Gateway> {
  const database = await PostgresServer.start();
  const dataDir = await mkdtemp(join(tmpdir(), 'wrong-node-'));
  const start = async (more: Partial<GatewayOptions>) => {
    const { first: httpsPort } = await freePorts(3);
    const sessionPort = options.sessionPort === null ? null : httpsPort + 2;
    const ports = { httpsPort, httpPort: httpsPort + 1, sessionPort };
    const shared = { databaseUrl: database.url(), encryptionKey: KEY, nodeAddress: `127.0.0.1:${httpsPort}` };
    return startGateway({ ...options, ...ports, ...shared, ...more });
  };
  const owner = await start({});
  const wrong = await start({ dataDir });
  const close = async () => {
    await Promise.all([owner.close(), wrong.close()]);
    await database.end();
    await rm(dataDir, { recursive: true });
  };
  return { ...owner, httpPort: wrong.httpPort, httpsPort: wrong.httpsPort, close };
}

/** Starts a gateway for a test. With a `dataDir`, its data stays after it is closed. */
export async function startTestGateway(options: Partial<GatewayOptions> = {}): Promise<TestGateway> {
  const dataDir = options.dataDir ?? (await makeDataDir());
  const start = THROUGH_WRONG_NODE ? startBehindWrongNode : startGateway;
  const gateway = await start({
    domain: 'localhost',
    host: '127.0.0.1',
    httpPort: 0,
    httpsPort: 0,
    sessionPort: 0,
    log: await createLog('silent', 'json'),
    ...options,
    dataDir,
  });
  return {
    ...gateway,
    sessionPort: gateway.sessionPort ?? 0,
    authtoken: await gateway.issueAuthtoken(),
    dataDir,
    async close() {
      await gateway.close();
      // A handshake that a client had begun may still write a certificate.
      if (options.dataDir === undefined) await rm(dataDir, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** A client of the gateway's management API, with an API key of its own. */
export async function managementClientOf({ store, apiUrl, sessionCa }: TestGateway): Promise<ManagementClient> {
  const { token } = await store.database.write(() => issueApiKey(store, {}));
  return new ManagementClient({ baseUrl: apiUrl, apiKey: token, ca: sessionCa });
}

/** The settings of an agent process for this gateway. */
export function agentSettings({ authtoken, sessionAddress, caFile }: AgentPlace): Record<string, string> {
  return { NGROK_AUTHTOKEN: authtoken, NGROK_SERVER_ADDR: sessionAddress, NGROK_CA_CERT: caFile };
}

/**
 * A session builder of the real SDK for a gateway, without reconnecting.
 *
 * @param address where to connect instead of the gateway, for example a proxy
 */
export function agentSession(gateway: TestGateway, address = gateway.sessionAddress): ngrok.SessionBuilder {
  return new ngrok.SessionBuilder()
    .authtoken(gateway.authtoken)
    .serverAddr(address)
    .caCert(Buffer.from(gateway.sessionCa))
    .handleDisconnection(() => false);
}

/**
 * GET over HTTPS, with the name in SNI and Host: it need not resolve. The certificate need not contain it: unknown names
 * get the default certificate.
 */
export function getPublic(
  { httpsPort, sessionCa, host: address = '127.0.0.1' }: Pick<Gateway, 'httpsPort' | 'sessionCa'> & { host?: string },
  url: string,
  headers: Record<string, string> = {},
): Promise<{ status: number | undefined; headers: IncomingHttpHeaders; body: string }> {
  const { hostname, host, pathname, search } = new URL(url);
  return new Promise((resolve, reject) => {
    request(
      {
        host: address,
        port: httpsPort,
        servername: hostname,
        path: pathname + search,
        headers: { host, ...headers },
        ca: sessionCa,
        checkServerIdentity: () => undefined,
        agent: false,
      },
      async (response) =>
        resolve({ status: response.statusCode, headers: response.headers, body: await text(response) }),
    )
      .on('error', reject)
      .end();
  });
}
