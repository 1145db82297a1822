import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Tunnel } from '../../src/agent/tunnels/tunnel.ts';
import { tunnelsCodec } from '../../src/agent/tunnels/tunnel-store.ts';
import { AgentProcess, temporaryFolder } from '../support/agent-process.ts';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import { startTestGateway, type TestGateway } from '../support/gateway.ts';
import { PublicClient } from './public-client.ts';
import { timeUntilAll } from './recovery.ts';

export interface SceneOptions {
  /** How many tunnels are persisted before the agent starts. */
  tunnels: number;
  /** Further ones, that the scene does not expect to serve. */
  others?: Partial<Tunnel>[];
  env?: Record<string, string>;
}

/**
 * A device and its gateway, with a network in between that can be made to fail: the agent as a process of its own
 * ↔ proxy ↔ gateway, and the tunnels' upstream, which tells by which name it was reached.
 */
export class Scene {
  readonly hosts: readonly string[];
  readonly client = new PublicClient(() => this.gateway);
  agent: AgentProcess | null = null;

  private constructor(
    public gateway: TestGateway,
    readonly proxy: FlakyProxy,
    readonly upstream: Server,
    readonly folder: string,
    private readonly options: SceneOptions,
  ) {
    this.hosts = Array.from({ length: options.tunnels }, (_, i) => `tunnel-${i}.localhost`);
  }

  /** Sets the scene, without the agent; plays it; and clears it away. */
  static async play(options: SceneOptions, act: (scene: Scene) => Promise<void>): Promise<void> {
    const [folder, removeFolder] = temporaryFolder();
    const gateway = await startTestGateway({ dataDir: join(folder, 'far') });
    const upstream = createServer((req, res) => res.end(req.headers.host)).listen(0, '127.0.0.1');
    await once(upstream, 'listening');
    let scene: Scene | null = null;
    const proxy = await FlakyProxy.start(() => (scene?.gateway ?? gateway).sessionAddress);
    scene = new Scene(gateway, proxy, upstream, folder, options);
    try {
      scene.writeAuthtoken();
      scene.#persistTunnels();
      await act(scene);
    } finally {
      await scene.#clear();
      removeFolder();
    }
  }

  /** Starts the agent; whether it gets anywhere is up to the network. */
  startAgent(): AgentProcess {
    this.agent = AgentProcess.start(this.folder, this.env);
    return this.agent;
  }

  /** The settings that lead the agent to its gateway. */
  get env(): Record<string, string> {
    return {
      NGROK_AUTHTOKEN_FILE: 'authtoken',
      NGROK_SERVER_ADDR: this.proxy.address,
      NGROK_CA_CERT: this.gateway.caFile,
      AGENT_PORT: '0',
      AGENT_DOMAIN: 'agent.localhost',
      ...this.options.env,
    };
  }

  /** Starts the agent and waits until every tunnel serves. */
  async startServing(): Promise<AgentProcess> {
    const agent = this.startAgent();
    await agent.logged('tunnels are up');
    await this.recovered();
    return agent;
  }

  /**
   * Has everything served once, by an agent that is gone afterwards: what is measured from then on is the agent, and
   * not how long the gateway takes to issue the certificates of fifty names.
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
    this.gateway = await startTestGateway({ dataDir, httpPort, httpsPort, sessionPort });
    this.writeAuthtoken();
  }

  /** Milliseconds from now, or from another moment, until each tunnel serves. */
  recovered(from = performance.now()): Promise<number[]> {
    return timeUntilAll(this.hosts, (host) => this.serves(host), { from });
  }

  /** Whether the public gets an answer of the device's own. */
  async serves(host: string): Promise<boolean> {
    return (await this.client.get(host)) === `${host}:${this.gateway.httpsPort}`;
  }

  #persistTunnels(): void {
    const { port } = this.upstream.address() as AddressInfo;
    const persisted = (tunnel: Partial<Tunnel> & { domain: string }): Tunnel => ({
      id: randomUUID(),
      protocol: 'http',
      forwards_to: `localhost:${port}`,
      url: `https://${tunnel.domain}:${this.gateway.httpsPort}`,
      policy: null,
      created_at: new Date().toISOString(),
      ...tunnel,
    });
    const all = [...(this.options.others ?? []), ...this.hosts.map((domain) => ({ domain }))];
    const tunnels = all.map((tunnel) => persisted({ domain: 'other.localhost', ...tunnel }));
    mkdirSync(join(this.folder, 'data'), { mode: 0o700 });
    writeFileSync(join(this.folder, 'data', 'tunnels.json'), tunnelsCodec.encode({ version: 1, tunnels }));
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
