import ngrok from '@ngrok/ngrok';
import { onTestFinished } from 'vitest';
import { openForChanges } from '../../src/gateway/store/open-gateway-store.ts';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import type { ConnectorKind } from '../../src/settings/agent-settings.ts';
import { persistTunnels } from '../faults/persisted-tunnels.ts';
import { PublicClient } from '../faults/public-client.ts';
import { AgentProcess, CLI, outcomeOf } from './agent-process.ts';
import { startBalancer } from './balancer.ts';
import { CLUSTER_KEY } from './cluster-node.ts';
import { freePorts } from './free-ports.ts';
import { GatewayProcess } from './gateway-process.ts';
import { startHttpService } from './http-service.ts';
import { PostgresServer } from './postgres-server.ts';
import { silentLog } from './silent-log.ts';
import { temporaryFolder } from './temporary-folder.ts';

/** A line of `gateway nodes --json`. */
interface ListedNode {
  id: string;
  address: string;
  state: string;
  sessions: number;
  endpoints: number;
}

/** Gateways on one PostgreSQL behind a load balancer, as operators start them. All ends with the test. */
export class ClusterProcesses {
  readonly #env: Record<string, string>;
  /** The program that commands are of: the newest that gateways are. */
  #cli = CLI;

  private constructor(
    readonly database: PostgresServer,
    readonly authtoken: string,
    readonly gateways: GatewayProcess[],
    /** Of the load balancer, for agents. */
    readonly address: string,
  ) {
    this.#env = environment(database);
  }

  /** @param more settings of each gateway @param held see {@link GatewayProcess.start} */
  static async start(count: number, more: Record<string, string> = {}, held = false): Promise<ClusterProcesses> {
    const database = await PostgresServer.start();
    onTestFinished(() => database.end());
    const authtoken = await newAuthtoken(database.url());
    const gateways: GatewayProcess[] = [];
    onTestFinished(() => Promise.all(gateways.map((gateway) => gateway.kill())).then(() => {}));
    for (let at = 0; at < count; at++) {
      const { first } = await freePorts(3);
      const ports = {
        GATEWAY_SESSION_PORT: String(first),
        GATEWAY_HTTPS_PORT: String(first + 1),
        GATEWAY_HTTP_PORT: String(first + 2),
      };
      const env = { ...environment(database), ...more, GATEWAY_NODE_ADDRESS: `127.0.0.1:${first + 1}` };
      gateways.push(await GatewayProcess.start(temporaryFolder(), env, { ports, held, authtoken }));
    }
    const balancer = await startBalancer(gateways.map(({ sessionAddress }) => sessionAddress));
    onTestFinished(balancer.close);
    return new ClusterProcesses(database, authtoken, gateways, balancer.address);
  }

  /** Runs `device-agent gateway …` beside the first gateway. */
  command(...args: string[]) {
    const env = { ...this.#env, GATEWAY_NODE_ADDRESS: '127.0.0.1:1' };
    return outcomeOf(process.execPath, [this.#cli, 'gateway', ...args], this.gateways[0]?.folder ?? '', env);
  }

  async nodes(): Promise<ListedNode[]> {
    return JSON.parse((await this.command('nodes', '--json')).stdout) as ListedNode[];
  }

  /** The places among the gateways of those that have sessions of agents. */
  async serving(): Promise<number[]> {
    const serving = (await this.nodes()).filter(({ sessions }) => Number(sessions) > 0);
    return serving.map((node) => this.placeOf(node)).sort();
  }

  placeOf({ address }: ListedNode): number {
    return this.gateways.findIndex(({ httpsPort }) => address === `127.0.0.1:${httpsPort}`);
  }

  /**
   * A device whose tunnel answers `seen`.
   *
   * @param onRequest called with the target of each request, which is answered when it is done
   * @param address for its agent; left out: that of the load balancer
   */
  async startDevice(
    domain: string,
    connector?: ConnectorKind,
    onRequest: (target: string) => void | Promise<void> = () => {},
    address = this.address,
  ): Promise<AgentProcess> {
    const upstream = await startHttpService(async (req, res) => {
      await onRequest(req.url ?? '');
      res.end('seen');
    });
    onTestFinished(() => upstream.close());
    const folder = temporaryFolder();
    const { port } = new URL(upstream.url);
    persistTunnels(folder, [{ domain, forwards_to: `localhost:${port}`, url: `https://${domain}` }]);
    const agent = AgentProcess.start(folder, {
      NGROK_AUTHTOKEN: this.authtoken,
      NGROK_SERVER_ADDR: address,
      NGROK_CA_CERT: this.gateways[0]?.caFile ?? '',
      ...(connector && { AGENT_CONNECTOR: connector }),
    });
    onTestFinished(() => agent.end('SIGKILL').then(() => {}));
    await agent.ready();
    return agent;
  }

  /** An agent as others write it: it connects to one address, and reconnects as its SDK does. */
  async startSdkAgent(address = this.address): Promise<void> {
    const builder = new ngrok.SessionBuilder().serverAddr(address).authtoken(this.authtoken);
    const session = await builder.caCert(Buffer.from(this.gateways[0]?.sessionCa ?? '')).connect();
    onTestFinished(() => session.close().catch(() => {}));
  }

  async drain(at: number): Promise<void> {
    const { id = '' } = (await this.nodes()).find((node) => this.placeOf(node) === at) ?? {};
    const { code, stderr } = await this.command('drain', id);
    if (code !== 0) throw new Error(stderr);
  }

  /** Drains a gateway, stops it as systemd does, and starts it again with the program of another version. */
  async upgrade(at: number, cli: string): Promise<void> {
    await this.drain(at);
    await this.gateways[at]?.stop();
    await this.gateways[at]?.restart(cli);
    this.#cli = cli;
  }

  /** A client of each gateway. */
  clients(): PublicClient[] {
    const clients = this.gateways.map(
      ({ httpsPort, sessionCa }) => new PublicClient(() => ({ httpsPort, sessionCa }), 20_000),
    );
    onTestFinished(() => {
      for (const client of clients) client.close();
    });
    return clients;
  }
}

function environment(database: PostgresServer): Record<string, string> {
  return { GATEWAY_DATABASE_URL: database.url(), GATEWAY_ENCRYPTION_KEY: CLUSTER_KEY };
}

async function newAuthtoken(databaseUrl: string): Promise<string> {
  const location = { dataDir: temporaryFolder(), encryptionKey: CLUSTER_KEY, databaseUrl };
  const { store, close } = await openForChanges(location, { older: 'upgrade', log: silentLog });
  const { token } = await store.database.write(() => issueCredential(store, { acl: [] }));
  await close();
  return token;
}
