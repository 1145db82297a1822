import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Tunnel } from '../../src/agent/tunnels/tunnel.ts';
import { AgentProcess } from '../support/agent-process.ts';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import { freePorts } from '../support/free-ports.ts';
import { startTestGateway, type TestGateway } from '../support/gateway.ts';
import { NETWORK_DOMAIN, type Network } from '../support/network.ts';
import { sharedFolder } from '../support/temporary-folder.ts';
import { persistTunnels } from './persisted-tunnels.ts';
import { PublicClient } from './public-client.ts';
import { timeUntilAll } from './recovery.ts';

const SOCKET = 'upstream.sock';

export interface SceneOptions {
  /** How many tunnels are persisted before the agent starts. */
  tunnels: number;
  /** Further ones, that the scene does not expect to serve. */
  others?: Partial<Tunnel>[];
  env?: Record<string, string>;
  /** How long clients wait for an answer, in milliseconds; the default detects a missing one soon. */
  patienceMs?: number;
  /** Between the device and the proxy; left out: the loopback. */
  network?: Network;
}

/**
 * A device and its gateway, with a network in between that can be made to fail: the agent as a process of its own
 * ↔ proxy ↔ gateway, and the tunnels' upstream, which tells by which name it was reached.
 */
export class Scene {
  readonly hosts: readonly string[];
  /** The gateway's. */
  readonly #domain: string;
  readonly client: PublicClient;
  agent: AgentProcess | null = null;

  private constructor(
    public gateway: TestGateway,
    readonly proxy: FlakyProxy,
    readonly upstream: Server,
    readonly folder: string,
    private readonly options: SceneOptions,
  ) {
    this.client = new PublicClient(() => this.gateway, options.patienceMs);
    this.#domain = domainOf(options);
    this.hosts = Array.from({ length: options.tunnels }, (_, i) => `tunnel-${i}.${this.#domain}`);
  }

  /** Sets the scene, without the agent; plays it; and clears it away. */
  static async play(options: SceneOptions, act: (scene: Scene) => Promise<void>): Promise<void> {
    const folder = sharedFolder();
    // While it is down, no connection of anybody must get one of its ports by chance.
    const { first } = await freePorts(3);
    const ports = { httpPort: first, httpsPort: first + 1, sessionPort: first + 2 };
    const gateway = await startTestGateway({ dataDir: join(folder, 'far'), domain: domainOf(options), ...ports });
    const upstream = createServer((req, res) => res.end(req.headers.host));
    // A socket in the file system is reached from any network.
    upstream.listen(options.network ? { path: join(folder, SOCKET) } : { port: 0, host: '127.0.0.1' });
    await once(upstream, 'listening');
    let scene: Scene | null = null;
    const proxy = await FlakyProxy.start(() => (scene?.gateway ?? gateway).sessionAddress, options.network?.near[0]);
    scene = new Scene(gateway, proxy, upstream, folder, options);
    try {
      scene.writeAuthtoken();
      scene.#persistTunnels();
      await act(scene);
    } finally {
      await scene.#clear();
    }
  }

  /** Starts the agent; whether it gets anywhere is up to the network. */
  startAgent(): AgentProcess {
    this.agent = AgentProcess.start(this.folder, this.env, [], this.options.network?.launcher);
    return this.agent;
  }

  /** The settings that lead the agent to its gateway. */
  get env(): Record<string, string> {
    return {
      NGROK_AUTHTOKEN_FILE: 'authtoken',
      NGROK_SERVER_ADDR: this.#serverAddress,
      NGROK_CA_CERT: this.gateway.caFile,
      AGENT_PORT: '0',
      AGENT_DOMAIN: `agent.${this.#domain}`,
      ...this.options.env,
    };
  }

  get #serverAddress(): string {
    const { address } = this.proxy;
    return this.options.network ? `connect.${this.#domain}${address.slice(address.indexOf(':'))}` : address;
  }

  /** Starts the agent and waits until every tunnel serves. */
  async startServing(): Promise<AgentProcess> {
    const agent = this.startAgent();
    // Other tunnels may be meant to fail.
    await Promise.race([agent.logged('tunnels online'), agent.logged('some tunnels are not online')]);
    await this.recovered();
    return agent;
  }

  /**
   * Starts all tunnels once with an agent that is then killed, so that later measurements do not include how long the
   * gateway takes to issue fifty certificates.
   */
  async rehearse(): Promise<void> {
    const agent = await this.startServing();
    await agent.end('SIGKILL');
  }

  /** The gateway's present authtoken, or another text, is what the agent finds in its file. */
  writeAuthtoken(authtoken = this.gateway.authtoken): void {
    writeFileSync(join(this.folder, 'authtoken'), authtoken);
  }

  async stopGateway(): Promise<void> {
    await this.gateway.close();
  }

  /** Starts the gateway again where it was, with the same data. */
  async restartGateway(): Promise<void> {
    const { httpPort, httpsPort, sessionAddress, dataDir } = this.gateway;
    const sessionPort = Number(new URL(`tcp://${sessionAddress}`).port);
    this.gateway = await startTestGateway({ dataDir, httpPort, httpsPort, sessionPort, domain: this.#domain });
    this.writeAuthtoken();
  }

  /** Milliseconds from now, or from another moment, until each tunnel serves. */
  recovered(from = performance.now()): Promise<number[]> {
    return timeUntilAll(this.hosts, (host) => this.serves(host), { from });
  }

  /** Whether clients get an answer of the device itself. */
  async serves(host: string): Promise<boolean> {
    return (await this.client.get(host)) === `${host}:${this.gateway.httpsPort}`;
  }

  #persistTunnels(): void {
    const address = this.upstream.address();
    const upstream = typeof address === 'string' ? `unix:${address}` : `localhost:${(address as AddressInfo).port}`;
    const others = (this.options.others ?? []).map((tunnel) => ({ domain: `other.${this.#domain}`, ...tunnel }));
    const tunnels = [...others, ...this.hosts.map((domain) => ({ domain }))].map((tunnel) => ({
      forwards_to: upstream,
      url: `https://${tunnel.domain}:${this.gateway.httpsPort}`,
      ...tunnel,
    }));
    persistTunnels(this.folder, tunnels);
  }

  async #clear(): Promise<void> {
    this.client.close();
    await this.agent?.end('SIGKILL');
    await this.proxy.close();
    await this.gateway.close();
    this.upstream.closeAllConnections();
    this.upstream.close();
  }
}

/** Within a network of its own, names are its name server's alone; elsewhere they are this machine's in any case. */
function domainOf({ network }: SceneOptions): string {
  return network ? NETWORK_DOMAIN : 'localhost';
}
