import type { BudgetPlan } from '../lib/budget-plan.ts';
import { messageOf } from '../lib/errors.ts';
import type { PortRange } from '../lib/network/port-range.ts';
import type { ProxyRules } from '../lib/network/proxy-rules.ts';
import { ownCommand } from '../lib/process/own-command.ts';
import { systemCas, type TrustedCas } from '../lib/tls/tls-options.ts';
import { PACKAGED_POLICIES } from '../packaged.ts';
import { type LogSettings, logSettings, proxyRules } from './common-settings.ts';
import { type OwnCa, ownCaOf } from './learned-cas.ts';
import { type Assemble, parseSettings } from './parse-settings.ts';
import { presentAuthtoken } from './renewed-authtoken.ts';
import { readCertificateFile, readSecretFile } from './setting-files.ts';
import { enrolmentFile, gatherTexts, type Texts, withoutSettingsFile } from './setting-sources.ts';
import type { UpstreamRules } from './upstream-rules.ts';
import { type Parsed, VARIABLES, type VariableName } from './variables.ts';

/** The gateway that the agent connects to. */
export type GatewaySettings =
  | {
      kind: 'embedded';
      /** Whether AGENT_GATEWAY selects it; otherwise it is the default without an authtoken. */
      chosen: boolean;
      domain: string;
      httpPort: number;
      httpsPort: number;
      /** For tcp endpoints; null: disabled. */
      tcpPorts: PortRange | null;
      encryptionKey: string | null;
    }
  | {
      kind: 'remote';
      /** Reads the authtoken again for each attempt, so that a replaced file takes effect. */
      authtoken: () => string;
      /** Reads the authtoken in the settings, which the agent may have renewed since. */
      configured: () => string;
      /** File of the enrolment of a device that has joined; it may be missing. */
      enrolment: string;
      /** `host:port`; null means ngrok's cloud. */
      serverAddr: string | null;
      /** Trusted CAs; null: the SDK's own. */
      authorities: TrustedCas | null;
      /** The gateway's own CA, which signs the time when the clock is wrong; null: unknown. */
      ownCa: OwnCa | null;
      proxies: ProxyRules;
    };

/** What carries the agent's sessions: ngrok's SDK, or our own code. */
export type ConnectorKind = 'sdk' | 'native';

export interface Settings {
  gateway: GatewaySettings;
  connector: ConnectorKind;
  /** What data on the way to the gateway costs. */
  link: 'default' | 'metered';
  /** Null: no limit. */
  dataBudget: BudgetPlan | null;
  api: {
    host: string;
    port: number;
    /** Domain on which the API is reachable remotely; null: no remote access. */
    domain: string | null;
    /** Whether remote calls require the API token. */
    requireToken: boolean;
    /** API token; null: generated into the data folder. */
    token: string | null;
  };
  /** Where new tunnels get their names; null: the gateway chooses. */
  site: { domain: string; deviceName: string | null } | null;
  allowUpstreams: UpstreamRules;
  verifyUpstreamTls: boolean;
  /** Reads the operating system's CAs. */
  systemCas: () => string;
  dataDir: string;
  defaultPolicies: string;
  /** Folder with files that declare tunnels; null: none. */
  tunnelsDir: string | null;
  log: LogSettings;
  /** Whether each request of a tunnel is logged. */
  logRequests: boolean;
}

const CLOUD_HOST = /(?:^|\.)ngrok(?:-agent)?\.(?:com|io)(?::\d+)?$/i;

export const AUTHTOKEN_FILE = '/etc/device-agent/authtoken';

const RELOADABLE: ReadonlySet<string> = new Set<VariableName>([
  'LOG_LEVEL',
  'DEFAULT_POLICIES',
  'AGENT_API_TOKEN',
  'AGENT_API_TOKEN_FILE',
  // Read when the service looks for updates.
  'AGENT_UPDATE',
  'AGENT_UPDATE_FROM',
]);

/**
 * Reads the agent's settings from all sources (see `gatherTexts`).
 *
 * @param change what to parse in place of what the sources have
 * @throws {OperatorError} exit code 2, with every invalid variable, its value (secrets hidden) and the allowed values
 */
export function loadSettings(
  env: NodeJS.ProcessEnv = process.env,
  folder = process.cwd(),
  change: (texts: Texts) => Texts = (texts) => texts,
): Settings {
  return parseSettings(agentSettings, change(gatherTexts(env, folder)), folder);
}

/** Rereads the agent's settings while it runs. */
export class SettingsSource {
  readonly #env: NodeJS.ProcessEnv;
  #started: Texts | null = null;

  /** @throws {OperatorError} when the file in SETTINGS_FILE is unreadable */
  constructor(
    env: NodeJS.ProcessEnv = process.env,
    private readonly folder = process.cwd(),
  ) {
    this.#env = withoutSettingsFile(env, folder);
  }

  /**
   * Reads the settings as {@link loadSettings} does.
   *
   * @returns `restartFor`: variables that changed since the first call and require a restart
   * @throws {OperatorError} as {@link loadSettings} does
   */
  read(): { settings: Settings; restartFor: string[] } {
    const texts = gatherTexts(this.#env, this.folder);
    const settings = parseSettings(agentSettings, texts, this.folder);
    const started = this.#started ?? texts;
    this.#started = started;
    const changed = Object.keys(VARIABLES).filter((name) => texts[name] !== started[name]);
    return { settings, restartFor: changed.filter((name) => !RELOADABLE.has(name)) };
  }
}

/** All names of an embedded gateway are the agent's own. */
function site({ AGENT_SITE, AGENT_NAME }: Parsed, gateway: GatewaySettings): Settings['site'] {
  if (AGENT_SITE !== null) return { domain: AGENT_SITE, deviceName: AGENT_NAME };
  return gateway.kind === 'embedded' ? { domain: gateway.domain, deviceName: null } : null;
}

function agentSettings(values: Parsed, path: (value: string) => string, problems: string[]): Settings {
  const gateway = gatewaySettings(values, path, problems);
  return {
    gateway,
    connector: connectorKind(values, gateway, problems),
    link: values.AGENT_DATA_BUDGET === null ? (values.AGENT_LINK ?? 'default') : 'metered',
    dataBudget: dataBudget(values, problems),
    api: {
      host: values.AGENT_HOST,
      port: values.AGENT_PORT,
      domain: values.AGENT_DOMAIN ?? (gateway.kind === 'embedded' ? `agent.${gateway.domain}` : null),
      requireToken: values.AGENT_API_AUTH !== 'none',
      token: apiToken(values, path, problems),
    },
    site: site(values, gateway),
    allowUpstreams: values.AGENT_ALLOW_UPSTREAMS,
    verifyUpstreamTls: values.AGENT_VERIFY_UPSTREAM_TLS,
    systemCas: () => systemCas(process.env.SSL_CERT_FILE || null),
    dataDir: path(values.DATA_DIR),
    defaultPolicies: values.DEFAULT_POLICIES === null ? PACKAGED_POLICIES : path(values.DEFAULT_POLICIES),
    tunnelsDir: values.AGENT_TUNNELS_DIR === null ? null : path(values.AGENT_TUNNELS_DIR),
    log: logSettings(values),
    logRequests: values.LOG_REQUESTS,
  };
}

function gatewaySettings(values: Parsed, path: (value: string) => string, problems: string[]): GatewaySettings {
  const { AGENT_GATEWAY: kind, NGROK_SERVER_ADDR: serverAddr } = values;
  // Null: the value is invalid and already reported.
  if (kind === 'embedded' || kind === null) return embeddedGateway(values, true);
  const authtoken = authtokenReader(values, path, problems);
  if (!authtoken && serverAddr === null && kind === 'auto') return embeddedGateway(values, false);
  // An invalid authtoken is already reported.
  if (!authtoken && !problems.some((problem) => problem.startsWith('NGROK_AUTHTOKEN='))) {
    problems.push(
      `NGROK_AUTHTOKEN is not set, but ${serverAddr === null ? 'AGENT_GATEWAY=remote' : 'NGROK_SERVER_ADDR'} requires it: ` +
        `set it, or set NGROK_AUTHTOKEN_FILE to a file that contains only the authtoken (${AUTHTOKEN_FILE} for the service); ` +
        `or join a gateway of your own with ${ownCommand('join')}; ` +
        'or set AGENT_GATEWAY=embedded for tunnels that only this machine can reach',
    );
  }
  const configured = authtoken ?? (() => '');
  const authorities = trustedCas(values, path, problems);
  const isPinned = authorities !== null && 'pem' in authorities;
  const timeCa = readCertificateFile('AGENT_TIME_CA', values, path, problems);
  const pinned = timeCa ?? (isPinned ? authorities.pem : null);
  const ownCa = pinned === null ? null : ownCaOf(path(values.DATA_DIR), pinned);
  return {
    kind: 'remote',
    authtoken: () => presentAuthtoken(path(values.DATA_DIR), configured()),
    configured,
    enrolment: enrolmentFile(path(values.DATA_DIR), process.env),
    serverAddr,
    authorities: ownCa === null ? authorities : followed(authorities, ownCa, isPinned ? authorities.pem : null),
    ownCa,
    proxies: proxyRules(values),
  };
}

function embeddedGateway(values: Parsed, chosen: boolean): GatewaySettings {
  return {
    kind: 'embedded',
    chosen,
    domain: values.GATEWAY_DOMAIN,
    httpPort: values.GATEWAY_HTTP_PORT,
    httpsPort: values.GATEWAY_HTTPS_PORT,
    tcpPorts: values.GATEWAY_TCP_PORTS,
    encryptionKey: values.GATEWAY_ENCRYPTION_KEY,
  };
}

/** @param pem what sessions trust alone; null: the CAs of the operating system, or the SDK's own */
function followed(authorities: TrustedCas | null, ownCa: OwnCa, pem: string | Uint8Array | null): TrustedCas | null {
  if (pem !== null) return pem === ownCa.configured ? ownCa : authorities;
  if (authorities === null || !('host' in authorities)) return authorities;
  return {
    host: authorities.host,
    get own() {
      return ownCa.pem;
    },
  };
}

function trustedCas(values: Parsed, path: (value: string) => string, problems: string[]): TrustedCas | null {
  const word = values.NGROK_CA_CERT?.toLowerCase();
  if (word === 'trusted') return null;
  if (word === 'host') return operatingSystemCas(problems);
  const pem = readCertificateFile('NGROK_CA_CERT', values, path, problems);
  return pem === null ? null : { pem };
}

/** Whether a gateway is ngrok's cloud; null is its default address. */
export function isCloudAddress(serverAddr: string | null): boolean {
  return serverAddr === null || CLOUD_HOST.test(serverAddr);
}

/** ngrok may change its side of the protocol at any time, together with the SDK. */
function connectorKind(values: Parsed, gateway: GatewaySettings, problems: string[]): ConnectorKind {
  const { AGENT_CONNECTOR: kind } = values;
  if (kind !== 'native') return 'sdk';
  if (gateway.kind === 'remote' && isCloudAddress(gateway.serverAddr)) {
    problems.push(
      'AGENT_CONNECTOR=native: only works with a gateway of your own; set NGROK_SERVER_ADDR to its address, or remove AGENT_CONNECTOR',
    );
  }
  return kind;
}

/** The SDK's connections cannot be counted. */
function dataBudget(values: Parsed, problems: string[]): BudgetPlan | null {
  if (values.AGENT_DATA_BUDGET !== null && values.AGENT_CONNECTOR !== 'native')
    problems.push('AGENT_DATA_BUDGET: only works with AGENT_CONNECTOR=native, which needs a gateway of your own');
  return values.AGENT_DATA_BUDGET;
}

/** Reads SSL_CERT_FILE from the process's environment, as the SDK does. */
function operatingSystemCas(problems: string[]): TrustedCas | null {
  try {
    return { host: systemCas(process.env.SSL_CERT_FILE || null) };
  } catch (error) {
    problems.push(`NGROK_CA_CERT=host: ${messageOf(error)}`);
    return null;
  }
}

const authtokenReader: Assemble<(() => string) | undefined> = (values, path, problems) => {
  const { NGROK_AUTHTOKEN: token, NGROK_AUTHTOKEN_FILE: file } = values;
  rejectBoth('NGROK_AUTHTOKEN', values, problems);
  if (token !== null) return () => token;
  if (file === null) return undefined;
  let last = readSecretFile('NGROK_AUTHTOKEN_FILE', path(file), problems);
  return () => {
    // Keeps the last value while the file has none, for example during its replacement.
    last = readSecretFile('NGROK_AUTHTOKEN_FILE', path(file), []) || last;
    return last;
  };
};

/** Both variables in one source are ambiguous; across sources, the stronger source wins. */
function rejectBoth(name: 'NGROK_AUTHTOKEN' | 'AGENT_API_TOKEN', values: Parsed, problems: string[]): void {
  if (values[name] === null || values[`${name}_FILE`] === null) return;
  problems.push(`${name} and ${name}_FILE are both set in the same place: remove one`);
}

function apiToken(values: Parsed, path: (value: string) => string, problems: string[]): string | null {
  const { AGENT_API_TOKEN: token, AGENT_API_TOKEN_FILE: file } = values;
  rejectBoth('AGENT_API_TOKEN', values, problems);
  if (token === null && file === null) return null;
  const source = token === null ? 'AGENT_API_TOKEN_FILE' : 'AGENT_API_TOKEN';
  const value = token ?? readSecretFile('AGENT_API_TOKEN_FILE', path(file ?? ''), problems);
  if (value !== '' && value.length < 16) {
    problems.push(`${source}: the token has ${value.length} characters; use at least 16`);
  }
  return value;
}
