import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import type { Store } from '../../src/gateway/store/store.ts';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import { AgentProcess } from './agent-process.ts';
import { freePorts } from './free-ports.ts';
import { socketHolder } from './socket-holder.ts';

/** As in the unit. */
const HELD_RESTART_MS = 500;

/** A gateway in its own process, as operators start it; its ports stay the same after restarts. */
export class GatewayProcess {
  readonly #ports: Record<string, string>;
  readonly #launcher: string[];
  #running: AgentProcess | null = null;

  private constructor(
    readonly folder: string,
    /** An authtoken that may bind every name and stays valid after restarts. */
    readonly authtoken: string,
    private readonly env: Record<string, string>,
    launcherOn: (ports: readonly number[]) => string[],
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
    this.#launcher = launcherOn(Object.values(this.#ports).map(Number));
  }

  /**
   * @param folder its working folder, which must exist
   * @param options.launcher prefix of the command line
   * @param options.prepare writes to the database before the start
   * @param options.ports replace free ones, by their settings
   * @param options.held whether its sockets stay open while its process is replaced, as with systemd
   * @param options.authtoken one of its shared database; left out: it has a database of its own, and gets one
   */
  static async start(
    folder: string,
    env: Record<string, string> = {},
    {
      launcher = [],
      prepare = () => {},
      ports = {},
      held = false,
      authtoken,
    }: {
      launcher?: string[];
      prepare?: (store: Store) => void;
      ports?: Record<string, string>;
      held?: boolean;
      authtoken?: string;
    } = {},
  ): Promise<GatewayProcess> {
    const token = authtoken ?? (await GatewayProcess.#prepare(folder, prepare));
    const { first } = await freePorts(3);
    const launcherOn = (all: readonly number[]) => (held ? socketHolder(all, HELD_RESTART_MS) : launcher);
    const gateway = new GatewayProcess(folder, token, env, launcherOn, first, ports);
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
    this.#running = AgentProcess.start(this.folder, { ...this.env, ...this.#ports }, ['gateway'], this.#launcher, cli);
    await this.#running.logged('gateway listening');
  }

  /** Ends the process of a gateway whose sockets are held, and waits for the next one. */
  async replace(signal: NodeJS.Signals): Promise<void> {
    const from = this.process.lines.length;
    process.kill(this.#heldPid, signal);
    await this.process.logged('gateway listening', from);
  }

  get #heldPid(): number {
    return Number(this.process.lines.findLast(({ msg }) => msg === 'process started')?.pid);
  }

  /** Stops it as systemd does. */
  stop(): Promise<void> {
    return this.kill('SIGTERM');
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const pid = this.#running && this.#heldPid;
    await this.#running?.end(signal);
    // The holder has ended with the signal; the program is its child.
    if (pid) process.kill(pid, signal);
    this.#running = null;
  }
}
