import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import type { Store } from '../../src/gateway/store/store.ts';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import { AgentProcess } from './agent-process.ts';
import { freePorts } from './free-ports.ts';

/** A gateway in its own process, as operators start it; its ports stay the same after restarts. */
export class GatewayProcess {
  readonly #ports: Record<string, string>;
  #running: AgentProcess | null = null;

  private constructor(
    readonly folder: string,
    /** An authtoken that may bind every name and stays valid after restarts. */
    readonly authtoken: string,
    private readonly env: Record<string, string>,
    private readonly launcher: string[],
    /** Outside the ephemeral range: a client that dials such a port can otherwise get it as its own local port. */
    firstPort: number,
    ports: Record<string, string>,
  ) {
    this.#ports = {
      GATEWAY_SESSION_PORT: String(firstPort),
      GATEWAY_HTTPS_PORT: String(firstPort + 1),
      GATEWAY_HTTP_PORT: String(firstPort + 2),
      ...ports,
    };
  }

  /**
   * @param folder its working folder, which must exist
   * @param options.launcher prefix of the command line
   * @param options.prepare writes to the database before the start
   * @param options.ports replace free ones, by their settings
   * @param options.authtoken one of its shared database; left out: it has a database of its own, and gets one
   */
  static async start(
    folder: string,
    env: Record<string, string> = {},
    {
      launcher = [],
      prepare = () => {},
      ports = {},
      authtoken,
    }: {
      launcher?: string[];
      prepare?: (store: Store) => void;
      ports?: Record<string, string>;
      authtoken?: string;
    } = {},
  ): Promise<GatewayProcess> {
    const token = authtoken ?? (await GatewayProcess.#prepare(folder, prepare));
    const gateway = new GatewayProcess(folder, token, env, launcher, (await freePorts(3)).first, ports);
    await gateway.restart();
    return gateway;
  }

  static async #prepare(folder: string, prepare: (store: Store) => void): Promise<string> {
    const store = openGatewayStore({ dataDir: join(folder, 'data'), encryptionKey: null });
    const { token } = await store.database.write(() => {
      prepare(store);
      return issueCredential(store, { acl: [] });
    });
    store.database.close();
    return token;
  }

  get process(): AgentProcess {
    if (!this.#running) throw new Error('the gateway is not running');
    return this.#running;
  }

  get httpsPort(): number {
    return Number(this.#ports.GATEWAY_HTTPS_PORT);
  }

  get httpPort(): number {
    return Number(this.#ports.GATEWAY_HTTP_PORT);
  }

  /** `host:port` for agents. */
  get sessionAddress(): string {
    return `127.0.0.1:${this.#ports.GATEWAY_SESSION_PORT}`;
  }

  get caFile(): string {
    return join(this.folder, 'data', 'gateway', 'ca.pem');
  }

  get sessionCa(): string {
    return readFileSync(this.caFile, 'utf8');
  }

  /**
   * Kills the process, if it is running, and starts a new one.
   *
   * @param cli the program of another version
   */
  async restart(cli?: string): Promise<void> {
    await this.kill();
    this.#running = AgentProcess.start(this.folder, { ...this.env, ...this.#ports }, ['gateway'], this.launcher, cli);
    await this.#running.logged('gateway listening');
  }

  /** Stops it as systemd does. */
  stop(): Promise<void> {
    return this.kill('SIGTERM');
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    await this.#running?.end(signal);
    this.#running = null;
  }
}
