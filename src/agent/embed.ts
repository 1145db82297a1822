/** The entry of the package to embed: an agent within another program. */
import { EventEmitter } from 'node:events';
import { join, resolve } from 'node:path';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { createLog } from '../lib/log/log.ts';
import { systemClock } from '../lib/time/clock.ts';
import { systemCas } from '../lib/tls/tls-options.ts';
import { PACKAGED_POLICIES } from '../packaged.ts';
import { isCloudAddress, type Settings } from '../settings/agent-settings.ts';
import { ownCaOf } from '../settings/learned-cas.ts';
import { presentAuthtoken } from '../settings/renewed-authtoken.ts';
import { ENROLMENT_FILE } from '../settings/setting-sources.ts';
import type { Variable } from '../settings/variable-kinds.ts';
import { type Parsed, VARIABLES, type VariableName } from '../settings/variables.ts';
import { type Agent, startAgent } from './agent.ts';
import { parseInput } from './api/agent-routes.ts';
import type { ChangedTunnel, CreatedTunnel, NewTunnel, StatusReport, TunnelDetail } from './embed-types.ts';
import { AgentError } from './errors/agent-error.ts';
import { TunnelChange, TunnelRequest } from './tunnels/tunnel.ts';

export { ApiError, type ApiErrorOptions, OperatorError } from '../lib/errors.ts';
export type { ChangedTunnel, CreatedTunnel, NewTunnel, StatusReport, TunnelDetail } from './embed-types.ts';

/** Options of {@link createAgent}. They have the values and the defaults of the settings in docs/settings.md. */
export interface AgentOptions {
  /** Address of the gateway, such as `connect.gateway.example.com:443`. */
  gateway: string;
  /** The authtoken, or what returns it for each attempt to connect. */
  authtoken: string | (() => string);
  /** Folder with the agent's tunnels and keys, for one agent at a time. It is created with mode 0700. */
  dataDir: string;
  /** CAs that may sign the gateway's certificate: PEM, or `host` for those of the operating system. Default: ngrok's own. */
  ca?: string | undefined;
  /** `sdk` needs the package `@ngrok/ngrok`. Default: `sdk` for ngrok's cloud, else `native`. */
  connector?: 'native' | 'sdk' | undefined;
  /** `metered` for a SIM card: less data, and a silent loss of the link is noticed later. */
  link?: 'default' | 'metered' | undefined;
  /** Such as `50MB/month`; native connector only. */
  dataBudget?: string | undefined;
  /** URLs of proxies, as in HTTPS_PROXY and the like; `exempt` as in NO_PROXY. Default: none. */
  proxies?: Partial<Record<'https' | 'http' | 'all' | 'exempt', string>> | undefined;
  /** Domain of the site that new tunnels get names below, and the device's name there. Default: the gateway chooses. */
  site?: { domain: string; deviceName?: string | undefined } | undefined;
  /** Upstreams that `forwards_to` may name. Default: `loopback,private,unix`. */
  allowUpstreams?: string | undefined;
  /** Whether the certificates of https upstreams are verified. Default: true. */
  verifyUpstreamTls?: boolean | undefined;
  /** File with the default policies of tunnels. Default: the file in this package. */
  defaultPolicies?: string | undefined;
  /** Folder with files that declare tunnels. Default: none. */
  tunnelsDir?: string | undefined;
  /** Whether each request of a tunnel is logged. Default: false. */
  logRequests?: boolean | undefined;
  /** Default: `info`. */
  logLevel?: 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace' | 'silent' | undefined;
  /** Gets each line of the log, as JSON: for example `process.stderr`. Default: nothing is printed. */
  log?: { write(line: string): unknown } | undefined;
  /** The agent's HTTP API on 127.0.0.1, without the page; port 0 is any free port. Default: no API. */
  api?: { port: number } | undefined;
}

/** A line of the log. */
export interface LogRecord {
  level: string;
  /** RFC 3339, UTC. */
  time: string;
  msg: string;
  [field: string]: unknown;
}

export interface AgentEvents {
  /** The session with the gateway is online, or lost. */
  session: [session: StatusReport['session']];
  /** A tunnel is new, or has another state or URL. */
  tunnel: [tunnel: TunnelDetail];
  log: [record: LogRecord];
}

/**
 * The tunnels of an agent. They are on the disk, and come back with the next agent that has the same data folder.
 *
 * All methods reject with an {@link ApiError}, which has a `code` for programs; with `ERR_AGENT_NOT_READY` unless the agent
 * runs. `urlPart` is the first label, the host or the whole URL of a tunnel.
 */
export interface AgentTunnels {
  list(): Promise<TunnelDetail[]>;
  get(urlPart: string): Promise<TunnelDetail>;
  /** Resolves when the tunnel is online and on the disk. Rejects with `ERR_AGENT_OFFLINE` while there is no session. */
  create(tunnel: NewTunnel): Promise<CreatedTunnel>;
  /** Changes the policy or the upstream. */
  change(urlPart: string, change: ChangedTunnel): Promise<TunnelDetail>;
  /** Closes the tunnel and deletes it. */
  delete(urlPart: string): Promise<void>;
}

/** An agent in this process. It installs no signal handlers, and reads no settings from the environment. */
export interface EmbeddedAgent extends EventEmitter<AgentEvents> {
  readonly tunnels: AgentTunnels;
  /**
   * Starts the agent, which connects and reconnects until {@link stop}.
   *
   * @returns before the session is online; the event `session` says when it is
   * @throws {OperatorError} when something must be fixed first, such as a data folder that another agent uses
   */
  start(): Promise<void>;
  /** @throws {ApiError} `ERR_AGENT_NOT_READY` unless the agent runs */
  status(): StatusReport;
  /** Closes the session; the tunnels stay on the disk. The agent can be started again. */
  stop(): Promise<void>;
}

/**
 * Creates an agent, which {@link EmbeddedAgent.start} starts. A process can have several, each with its own data folder.
 *
 * @throws {OperatorError} when an option is not valid
 */
export function createAgent(options: AgentOptions): EmbeddedAgent {
  return new AgentInProcess(options);
}

class AgentInProcess extends EventEmitter<AgentEvents> implements EmbeddedAgent {
  readonly #settings: Settings;
  #starting: Promise<Agent> | null = null;
  #running: Agent | null = null;
  #stopping: Promise<void> | null = null;

  readonly tunnels: AgentTunnels = {
    list: async () => this.#agent().tunnels.list(),
    get: async (urlPart) => this.#agent().tunnels.get(urlPart),
    create: async (tunnel) => this.#agent().tunnels.create(parseInput(TunnelRequest, tunnel)),
    change: async (urlPart, change) => this.#agent().tunnels.change(urlPart, parseInput(TunnelChange, change)),
    delete: async (urlPart) => this.#agent().tunnels.delete(urlPart),
  };

  constructor(private readonly options: AgentOptions) {
    super();
    this.#settings = settingsOf(options);
  }

  async start(): Promise<void> {
    if (this.#starting !== null) throw new OperatorError('the agent has already been started: stop it first');
    this.#starting = this.#start();
    try {
      await this.#starting;
    } catch (error) {
      this.#running = null;
      this.#starting = null;
      throw error;
    }
  }

  status(): StatusReport {
    return this.#agent().report();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop().finally(() => {
      this.#starting = null;
      this.#stopping = null;
    });
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    // The caller of start() gets the reason of a failed start.
    const agent = await this.#starting?.catch(() => null);
    this.#running = null;
    await agent?.stop();
  }

  async #start(): Promise<Agent> {
    const log = await createLog(this.#settings.log.level, 'json', { write: (line) => this.#logged(line) });
    const agent = await startAgent(this.#settings, log, systemClock, {
      logTail: null,
      diagnose: null,
      onSession: () => this.#tell(() => this.emit('session', agent.report().session)),
      onTunnel: (tunnel) => this.#tell(() => this.emit('tunnel', tunnel)),
      hasLocalApi: this.options.api !== undefined,
    });
    // A listener of `session` may use it before the start is complete.
    this.#running = agent;
    await agent.started;
    return agent;
  }

  #agent(): Agent {
    if (this.#running !== null) return this.#running;
    throw new AgentError('ERR_AGENT_NOT_READY', 'the agent does not run: call start() and wait for it');
  }

  #logged(line: string): void {
    this.options.log?.write(line);
    if (this.listenerCount('log') > 0) this.#tell(() => this.emit('log', JSON.parse(line)));
  }

  /** An error of a listener is the program's: it must not reach the agent's own code. */
  #tell(event: () => void): void {
    queueMicrotask(event);
  }
}

function settingsOf(options: AgentOptions): Settings {
  const { gateway, authtoken, ca, proxies = {}, site, api, defaultPolicies, tunnelsDir } = options;
  const dataDir = resolve(required('dataDir', options.dataDir || null));
  const serverAddr = required('gateway', parsed('gateway', 'NGROK_SERVER_ADDR', gateway));
  const token = (given: string) => required('authtoken', parsed('authtoken', 'NGROK_AUTHTOKEN', given));
  const fixed = typeof authtoken === 'function' ? null : token(authtoken);
  const configured = () => fixed ?? token((authtoken as () => string)());
  const isCloud = isCloudAddress(serverAddr);
  const connector = parsed('connector', 'AGENT_CONNECTOR', options.connector ?? (isCloud ? 'sdk' : 'native'));
  const ownCa = ca === undefined || ca === 'host' ? null : ownCaOf(dataDir, ca);
  if (isCloud && connector === 'native') throw new OperatorError("connector: ngrok's cloud requires sdk", 2);
  if (options.dataBudget !== undefined && connector !== 'native')
    throw new OperatorError('dataBudget: requires the connector native, and so a gateway of your own', 2);
  return {
    gateway: {
      kind: 'remote',
      authtoken: () => presentAuthtoken(dataDir, configured()),
      configured,
      enrolment: join(dataDir, ENROLMENT_FILE),
      serverAddr,
      authorities: ca === 'host' ? { host: systemCas(null) } : ownCa,
      ownCa,
      proxies: {
        https: parsed('proxies.https', 'HTTPS_PROXY', proxies.https),
        http: parsed('proxies.http', 'HTTP_PROXY', proxies.http),
        all: parsed('proxies.all', 'ALL_PROXY', proxies.all),
        exempt: parsed('proxies.exempt', 'NO_PROXY', proxies.exempt) ?? (() => false),
      },
    },
    connector,
    link: options.dataBudget === undefined ? parsed('link', 'AGENT_LINK', options.link) : 'metered',
    dataBudget: parsed('dataBudget', 'AGENT_DATA_BUDGET', options.dataBudget),
    api: {
      host: '127.0.0.1',
      port: parsed('api.port', 'AGENT_PORT', api && String(api.port)),
      domain: null,
      requireToken: true,
      token: null,
    },
    site: site
      ? {
          domain: required('site.domain', parsed('site.domain', 'AGENT_SITE', site.domain)),
          deviceName: parsed('site.deviceName', 'AGENT_NAME', site.deviceName),
        }
      : null,
    allowUpstreams: parsed('allowUpstreams', 'AGENT_ALLOW_UPSTREAMS', options.allowUpstreams),
    verifyUpstreamTls: options.verifyUpstreamTls ?? parsed('verifyUpstreamTls', 'AGENT_VERIFY_UPSTREAM_TLS', undefined),
    systemCas: () => systemCas(null),
    dataDir,
    defaultPolicies: defaultPolicies === undefined ? PACKAGED_POLICIES : resolve(defaultPolicies),
    tunnelsDir: tunnelsDir === undefined ? null : resolve(tunnelsDir),
    log: { level: parsed('logLevel', 'LOG_LEVEL', options.logLevel), format: 'json' },
    logRequests: options.logRequests ?? parsed('logRequests', 'LOG_REQUESTS', undefined),
  };
}

/**
 * The value of an option, which the setting of this name parses; the setting's default without one.
 *
 * @throws {OperatorError} when it is not allowed
 */
function parsed<N extends VariableName>(option: string, name: N, value: string | undefined): Parsed[N] {
  const variable: Variable<unknown> = VARIABLES[name];
  const text = value ?? variable.default;
  try {
    return (text === null ? null : variable.parse(text)) as Parsed[N];
  } catch (error) {
    const shown = variable.secret ? '(not shown)' : JSON.stringify(text);
    throw new OperatorError(`${option}: ${shown}: ${messageOf(error)}; allowed: ${variable.allowed}`, 2);
  }
}

function required<T>(option: string, value: T | null): T {
  if (value !== null) return value;
  throw new OperatorError(`${option} is missing`, 2);
}
