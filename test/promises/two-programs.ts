import { mkdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { AgentProcess, CLI, outcomeOf } from '../support/agent-process.ts';
import { freePorts } from '../support/free-ports.ts';
import { exchange } from '../support/https-exchange.ts';
import { serving } from '../support/loopback.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

/** What visitors of the tunnel have to send: part of the stored policy. */
const CREDENTIALS = 'jo:a long password';
const SENT = { authorization: `Basic ${Buffer.from(CREDENTIALS).toString('base64')}` };

/** A device that joins a gateway, where each of both may be the program of another version. */
export class TwoPrograms {
  readonly gatewayFolder: string;
  readonly deviceFolder: string;
  #gateway: AgentProcess | null = null;
  #device: AgentProcess | null = null;

  private constructor(
    readonly root: string,
    private readonly programs: { gateway: string; device: string },
    private readonly ports: Record<string, string>,
    private readonly upstream: number,
  ) {
    this.gatewayFolder = join(root, 'gateway');
    this.deviceFolder = join(root, 'device');
  }

  /**
   * @param programs their `cli.js`
   * @param root a folder with the data of both; left out: a new one
   */
  static async create(programs: { gateway?: string; device?: string }, root = temporaryFolder()): Promise<TwoPrograms> {
    const { first } = await freePorts(3);
    const ports = {
      GATEWAY_SESSION_PORT: String(first),
      GATEWAY_HTTPS_PORT: String(first + 1),
      GATEWAY_HTTP_PORT: String(first + 2),
    };
    const upstream = await serving(createServer((_req, res) => void res.end('the camera')));
    const made = new TwoPrograms(root, { gateway: CLI, device: CLI, ...programs }, ports, upstream);
    for (const folder of [made.gatewayFolder, made.deviceFolder]) mkdirSync(folder, { recursive: true });
    return made;
  }

  /** Starts the gateway with the data that its folder has. */
  async startGateway(): Promise<void> {
    const { gateway: cli } = this.programs;
    this.#gateway = AgentProcess.inTest(this.gatewayFolder, this.ports, ['gateway'], [], cli);
    await this.#gateway.logged('gateway listening');
  }

  /** Runs a command of the gateway; returns its JSON. */
  async gatewayCommand<T>(...args: string[]): Promise<T> {
    const command = [this.programs.gateway, 'gateway', ...args, '--json'];
    const { code, stdout, stderr } = await outcomeOf(process.execPath, command, this.gatewayFolder, this.ports);
    if (code !== 0) throw new Error(stderr);
    return JSON.parse(stdout);
  }

  /**
   * Starts the device with the data that its folder has, until it is online.
   *
   * @param code joins with it at the first start
   */
  async startDevice(connector: 'sdk' | 'native', code = ''): Promise<void> {
    const env = {
      AGENT_GATEWAY: 'remote',
      AGENT_CONNECTOR: connector,
      ...(code === '' ? this.#place() : { AGENT_JOIN_CODE: code }),
      AGENT_NAME: 'cam',
    };
    this.#device = AgentProcess.inTest(this.deviceFolder, env, ['run'], [], this.programs.device);
    await this.#device.ready();
  }

  /** Where the gateway is now, and its certificate authority: data that has moved names an address and a folder of before. */
  #place(): Record<string, string> {
    return {
      NGROK_SERVER_ADDR: `127.0.0.1:${this.ports.GATEWAY_SESSION_PORT}`,
      NGROK_CA_CERT: join(this.deviceFolder, 'data/gateway-ca.pem'),
    };
  }

  async stopDevice(): Promise<void> {
    await this.#device?.end();
  }

  /** Ends the gateway as a crash does, and starts it again; the device has to come back. */
  async crashGateway(): Promise<void> {
    await this.#gateway?.end('SIGKILL');
    await this.startGateway();
  }

  async stopGateway(): Promise<void> {
    await this.#gateway?.end();
  }

  /** Opens a tunnel with a policy. */
  async openTunnel(): Promise<void> {
    const config = { credentials: [CREDENTIALS] };
    await this.api('POST', '/tunnels', {
      protocol: 'http',
      forwards_to: String(this.upstream),
      domain: 'door',
      policy: { on_http_request: [{ actions: [{ type: 'basic-auth', config }] }] },
    });
  }

  /** Lets the tunnel lead to this run's upstream. */
  async moveTunnel(): Promise<void> {
    const [tunnel] = (await this.api('GET', '/tunnels')) as { url: string }[];
    await this.api('PATCH', `/tunnels/${encodeURIComponent(tunnel?.url ?? '')}`, {
      forwards_to: String(this.upstream),
    });
  }

  /** Calls the device's API. */
  async api(method: string, path: string, body?: object): Promise<unknown> {
    const answer = await fetch(`${await this.#device?.api()}${path}`, {
      method,
      ...(body && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text === '' ? null : JSON.parse(text);
  }

  /** Waits until a client gets the upstream's answer with the password, and asserts that it gets none without. */
  async served(): Promise<void> {
    const url = `https://door-cam.site.localhost:${this.ports.GATEWAY_HTTPS_PORT}/`;
    const other = `https://door.site.localhost:${this.ports.GATEWAY_HTTPS_PORT}/`;
    await until(
      async () => {
        const answers = await Promise.all(
          [url, other].map((each) => exchange(each, { headers: SENT }).catch(() => null)),
        );
        return answers.some((answer) => answer?.status === 200 && String(answer.body) === 'the camera');
      },
      'the upstream’s answer',
      { withinMs: 60_000, everyMs: 100 },
    );
    const without = await Promise.all([url, other].map((each) => exchange(each)));
    if (without.some(({ status }) => status === 200)) throw new Error('the tunnel lost its policy');
  }

  /** What must not change: keys that others have pinned or use. */
  identity(): { ca: string; apiToken: string } {
    return {
      ca: readFileSync(join(this.gatewayFolder, 'data/gateway/ca.pem'), 'utf8'),
      apiToken: readFileSync(join(this.deviceFolder, 'data/api-token'), 'utf8'),
    };
  }
}
