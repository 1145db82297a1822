import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Authorities } from './agent/connector/gateway-link.ts';
import { hostAuthorities } from './agent/connector/host-authorities.ts';
import { parseUpstreamRules, type UpstreamRules } from './agent/tunnels/upstream-rules.ts';
import type { AcmeSettings } from './gateway/certificates/choose-issuer.ts';
import type { OwnNamesChoice } from './gateway/certificates/own-names.ts';
import type { EdgeLimits } from './gateway/edge/edge-limits.ts';
import type { ChallengeDnsSettings } from './gateway/gateway.ts';
import type { PortRange } from './gateway/sessions/tcp-ports.ts';
import { messageOf, OperatorError } from './lib/errors.ts';
import { LOG_LEVELS, type LogFormat, type LogLevel } from './lib/log.ts';
import type { ProxyRules } from './lib/proxy-rules.ts';
import type { ServiceManagerSettings } from './service/notifier.ts';
import { gatherTexts, type Texts, withoutSettingsFile } from './settings-sources.ts';
import {
  AUTHORITIES,
  acmeDirectory,
  count,
  email,
  hostAndPort,
  hostname,
  noProxy,
  OWN_AUTHORITY,
  oneOf,
  origin,
  port,
  portRange,
  proxy,
  resolvers,
  secret,
  text,
  type Variable,
} from './variable-kinds.ts';

/** Where the agent's session goes. */
export type GatewaySettings =
  | {
      kind: 'embedded';
      /** Whether AGENT_GATEWAY asks for it; else it stands in because nothing is set. */
      chosen: boolean;
      domain: string;
      httpPort: number;
      httpsPort: number;
      /** For tcp endpoints; null: there are none. */
      tcpPorts: PortRange | null;
      encryptionKey: string | null;
    }
  | {
      kind: 'remote';
      /** Reads the authtoken anew, so that a replaced file is used at the next attempt. */
      authtoken: () => string;
      /** `host:port`; null means ngrok's cloud. */
      serverAddr: string | null;
      /** Whom to trust; null means the SDK's own. */
      authorities: Authorities | null;
      proxies: ProxyRules;
    };

/** A gateway that runs by itself: `device-agent gateway`. */
export interface GatewayServerSettings {
  dataDir: string;
  log: LogSettings;
  host: string;
  domain: string;
  httpPort: number;
  httpsPort: number;
  /** For tcp endpoints; null: there are none. */
  tcpPorts: PortRange | null;
  /** A further port for agents; null: none. */
  sessionPort: number | null;
  apiUrl: string | null;
  encryptionKey: string | null;
  /** Whom reserved domains get their certificates from; null: the gateway's own CA. */
  acme: AcmeSettings | null;
  /** Where the challenges of wildcard domains are answered; null: nowhere. */
  challengeDns: ChallengeDnsSettings | null;
  edgeLimits: EdgeLimits;
  limits: {
    /** Null: no limit. */
    rateLimit: { requests: number; windowMs: number } | null;
    body: { maxBytes: number; timeoutMs: number };
    failedAttempts: { free: number; windowMs: number; delayMs: number; maxDelayMs: number };
  };
}

/** Where the management client goes: `device-agent setup`. */
export interface ManagementSettings {
  apiUrl: string | null;
  apiKey: string | null;
  /** PEM of the authority to trust; null: the public ones. */
  apiCa: string | null;
  proxies: ProxyRules;
  /** As they are set, for the lines that a device gets. */
  serverAddr: string | null;
  caCert: string | null;
}

interface LogSettings {
  level: LogLevel;
  format: LogFormat;
}

/** All that the agent goes by; made once at start by {@link loadSettings}. */
export interface Settings {
  gateway: GatewaySettings;
  api: {
    host: string;
    port: number;
    /** Domain on which the API is reachable remotely; null: not at all. */
    domain: string | null;
    /** Whether remote calls need the token. */
    requireToken: boolean;
    /** Token that was set; null: one is generated into the data folder. */
    token: string | null;
  };
  allowUpstreams: UpstreamRules;
  verifyUpstreamTls: boolean;
  dataDir: string;
  defaultPolicies: string;
  log: LogSettings;
}

/** Every variable that the program knows. README's table and .env.example list the same ones. */
export const VARIABLES = {
  AGENT_GATEWAY: oneOf(['auto', 'remote', 'embedded'], 'auto'),
  NGROK_AUTHTOKEN: secret('an authtoken'),
  NGROK_AUTHTOKEN_FILE: text('the path of a file that holds the authtoken alone'),
  NGROK_SERVER_ADDR: hostAndPort,
  NGROK_CA_CERT: text('the path of a PEM file; host: whom this system trusts; trusted: whom the SDK trusts'),
  HTTPS_PROXY: proxy,
  HTTP_PROXY: proxy,
  ALL_PROXY: proxy,
  NO_PROXY: noProxy,
  AGENT_HOST: text('an IP address or a name of this machine', '127.0.0.1'),
  AGENT_PORT: port(4040),
  AGENT_DOMAIN: hostname(null),
  AGENT_API_TOKEN: secret('a token of at least 16 characters'),
  AGENT_API_TOKEN_FILE: text('the path of a file that holds the token alone'),
  AGENT_API_AUTH: oneOf(['token', 'none'], 'token'),
  AGENT_ALLOW_UPSTREAMS: {
    default: 'loopback,private,unix',
    allowed:
      'a comma-separated list of hosts, CIDRs and the words loopback, private, any, each with an optional :port, ' +
      'and of unix (sockets of the agent’s own user) and unix:/path',
    parse: parseUpstreamRules,
  },
  AGENT_VERIFY_UPSTREAM_TLS: oneOf(['true', 'false'], 'true'),
  DATA_DIR: text('a folder', 'data'),
  DEFAULT_POLICIES: text('the path of a JSON file'),
  GATEWAY_DOMAIN: hostname('localhost', 'a hostname such as localhost'),
  GATEWAY_HTTPS_PORT: port(8443),
  GATEWAY_HTTP_PORT: port(8080),
  GATEWAY_TCP_PORTS: portRange('20000-20999'),
  GATEWAY_SESSION_PORT: port(null),
  GATEWAY_HOST: text('an IP address of this machine; 0.0.0.0 for all, :: for those of IPv6 as well', '127.0.0.1'),
  GATEWAY_API_URL: origin,
  GATEWAY_ENCRYPTION_KEY: secret('32 random bytes in base64: openssl rand -base64 32'),
  GATEWAY_ACME_DIRECTORY: acmeDirectory,
  GATEWAY_ACME_OWN_NAMES: oneOf<OwnNamesChoice>(['none', 'public', 'all'], 'none'),
  GATEWAY_ACME_EMAIL: email,
  GATEWAY_ACME_EAB_KID: text('the key identifier that the certificate authority gave out'),
  GATEWAY_ACME_EAB_HMAC: secret('the key that goes with the identifier, in base64url'),
  GATEWAY_ACME_CA_CERT: text('the path of a PEM file'),
  GATEWAY_DNS_PORT: port(null),
  GATEWAY_DNS_HOST: text('an IP address of this machine; :: for all'),
  GATEWAY_DNS_NAMESERVER: hostname(null, 'the hostname in the NS record of acme.GATEWAY_DOMAIN, outside of that zone'),
  GATEWAY_DNS_RESOLVERS: resolvers,
  GATEWAY_API_RATE_LIMIT: count(0, 1_000_000, 'requests per minute and API key; 0 for no limit'),
  GATEWAY_API_BODY_LIMIT: count(1_048_576, 16_777_216, 'bytes'),
  GATEWAY_API_TIMEOUT: count(30, 3600, 'seconds that a request may take to arrive'),
  GATEWAY_MAX_CONNECTIONS: count(8192, 1_000_000, 'connections of the public at once on each port', 1),
  GATEWAY_HANDSHAKE_TIMEOUT: count(10, 600, 'seconds that a TLS handshake may take', 1),
  GATEWAY_HEADERS_TIMEOUT: count(30, 600, 'seconds that the headers of a request may take to arrive', 1),
  GATEWAY_HEADERS_LIMIT: count(65_536, 1_048_576, 'bytes of the headers of a request or response', 1024),
  GATEWAY_HTTP_STREAMS: count(100, 1000, 'requests at a time by one HTTP/2 connection; 0 to offer no HTTP/2'),
  GATEWAY_STREAM_TIMEOUT: count(3600, 604_800, 'seconds without a byte', 1),
  GATEWAY_API_AUTH_DELAY: count(250, 60_000, 'milliseconds that each further wrong API key is slowed down'),
  MANAGEMENT_API_URL: origin,
  MANAGEMENT_API_KEY: secret('an API key'),
  MANAGEMENT_API_CA_CERT: text('the path of a PEM file'),
  SETTINGS_FILE: text('the path of a file such as .env; not in .env itself'),
  LOG_LEVEL: oneOf(LOG_LEVELS, 'info'),
  LOG_FORMAT: oneOf<LogFormat | 'auto'>(['auto', 'json', 'pretty'], 'auto'),
} satisfies Record<string, Variable<unknown>>;

/** Where the unit takes the authtoken from. */
export const AUTHTOKEN_FILE = '/etc/device-agent/authtoken';

/** The default policies that come with the program. */
const PACKAGED_POLICIES = fileURLToPath(new URL('../defaults/policies.json', import.meta.url));

type Variables = typeof VARIABLES;
type VariableName = keyof Variables;
type Parsed = { [N in VariableName]: ReturnType<Variables[N]['parse']> | null };

/**
 * Reads the agent's settings from the environment and, for what it does not set, from `.env` in the given folder.
 *
 * @param env the process's environment
 * @param folder where `.env` is looked for and what relative paths are relative to
 * @throws {OperatorError} exit code 2, naming every variable that is wrong, its value (secrets masked) and what is allowed
 */
export function loadSettings(env: NodeJS.ProcessEnv = process.env, folder = process.cwd()): Settings {
  return load(agentSettings, env, folder);
}

/** Settings that a running agent takes over. */
const RELOADABLE: ReadonlySet<string> = new Set<VariableName>([
  'LOG_LEVEL',
  'DEFAULT_POLICIES',
  'AGENT_API_TOKEN',
  'AGENT_API_TOKEN_FILE',
]);

/** The agent's settings, to be read again while it runs. */
export class SettingsSource {
  readonly #env: NodeJS.ProcessEnv;
  #started: Texts | null = null;

  /** @throws {OperatorError} when the file that SETTINGS_FILE names cannot be read */
  constructor(
    env: NodeJS.ProcessEnv = process.env,
    private readonly folder = process.cwd(),
  ) {
    this.#env = withoutSettingsFile(env, folder);
  }

  /**
   * Reads them as {@link loadSettings} does.
   *
   * @returns also the variables that are not as they were the first time, and that a running agent does not take over
   * @throws {OperatorError} as that does
   */
  read(): { settings: Settings; restartFor: string[] } {
    const texts = gatherTexts(this.#env, this.folder);
    const settings = parse(agentSettings, texts, this.folder);
    const started = this.#started ?? texts;
    this.#started = started;
    const changed = Object.keys(VARIABLES).filter((name) => texts[name] !== started[name]);
    return { settings, restartFor: changed.filter((name) => !RELOADABLE.has(name)) };
  }
}

/** The same for `device-agent gateway`, which no setting of an agent can keep from starting. */
export function loadGatewayServerSettings(
  env: NodeJS.ProcessEnv = process.env,
  folder = process.cwd(),
): GatewayServerSettings {
  return load(gatewayServerSettings, env, folder);
}

/** The same for `device-agent setup`. */
export function loadManagementSettings(
  env: NodeJS.ProcessEnv = process.env,
  folder = process.cwd(),
): ManagementSettings {
  return load(managementSettings, env, folder);
}

/** What systemd says to a service; null: none started this process. */
export function loadServiceManager(env: NodeJS.ProcessEnv = process.env): ServiceManagerSettings | null {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: microseconds } = env;
  return socket ? { socket, watchdogMs: microseconds ? Number(microseconds) / 1000 : null } : null;
}

type Assemble<T> = (values: Parsed, path: (value: string) => string, problems: string[]) => T;

function load<T>(assemble: Assemble<T>, env: NodeJS.ProcessEnv, folder: string): T {
  return parse(assemble, gatherTexts(env, folder), folder);
}

function parse<T>(assemble: Assemble<T>, texts: Texts, folder: string): T {
  const problems: string[] = [];
  const values = parseVariables(texts, problems);
  const settings = assemble(values, (value) => resolve(folder, value), problems);
  if (problems.length > 0) {
    throw new OperatorError(`the settings are not usable:\n${problems.map((problem) => `  ${problem}`).join('\n')}`, 2);
  }
  return settings;
}

function parseVariables(texts: Texts, problems: string[]): Parsed {
  const parsed: Record<string, unknown> = {};
  for (const [name, variable] of Object.entries<Variable<unknown>>(VARIABLES)) {
    const value = texts[name] ?? variable.default;
    try {
      parsed[name] = value === null ? null : variable.parse(value);
    } catch (error) {
      parsed[name] = null;
      const shown = variable.secret ? '(not shown)' : JSON.stringify(value);
      problems.push(`${name}=${shown}: ${messageOf(error)}; allowed: ${variable.allowed}`);
    }
  }
  return parsed as Parsed;
}

function agentSettings(values: Parsed, path: (value: string) => string, problems: string[]): Settings {
  const gateway = gatewaySettings(values, path, problems);
  return {
    gateway,
    api: {
      host: values.AGENT_HOST ?? '',
      port: values.AGENT_PORT ?? 0,
      domain: values.AGENT_DOMAIN ?? (gateway.kind === 'embedded' ? `agent.${gateway.domain}` : null),
      requireToken: values.AGENT_API_AUTH !== 'none',
      token: apiToken(values, path, problems),
    },
    allowUpstreams: values.AGENT_ALLOW_UPSTREAMS ?? parseUpstreamRules('loopback'),
    verifyUpstreamTls: values.AGENT_VERIFY_UPSTREAM_TLS !== 'false',
    dataDir: path(values.DATA_DIR ?? ''),
    defaultPolicies: values.DEFAULT_POLICIES === null ? PACKAGED_POLICIES : path(values.DEFAULT_POLICIES),
    log: logSettings(values),
  };
}

function logSettings({ LOG_LEVEL: level, LOG_FORMAT: format }: Parsed): LogSettings {
  const automatic = process.stdout.isTTY ? 'pretty' : 'json';
  return { level: level ?? 'info', format: format === null || format === 'auto' ? automatic : format };
}

function managementSettings(values: Parsed, path: (value: string) => string, problems: string[]): ManagementSettings {
  return {
    apiUrl: values.MANAGEMENT_API_URL,
    apiKey: values.MANAGEMENT_API_KEY,
    apiCa: readCertificates('MANAGEMENT_API_CA_CERT', values, path, problems)?.toString() ?? null,
    proxies: proxyRules(values),
    serverAddr: values.NGROK_SERVER_ADDR,
    caCert: values.NGROK_CA_CERT,
  };
}

function gatewaySettings(values: Parsed, path: (value: string) => string, problems: string[]): GatewaySettings {
  const { AGENT_GATEWAY: kind, NGROK_SERVER_ADDR: serverAddr } = values;
  if (kind === 'embedded') return embeddedGateway(values, true);
  const authtoken = authtokenReader(values, path, problems);
  if (!authtoken && serverAddr === null && kind === 'auto') return embeddedGateway(values, false);
  if (!authtoken) {
    problems.push(
      `NGROK_AUTHTOKEN is not set, but ${serverAddr === null ? 'AGENT_GATEWAY=remote' : 'NGROK_SERVER_ADDR'} needs one: ` +
        'set it, or put it alone into a file that NGROK_AUTHTOKEN_FILE names (installed as a service: ' +
        `${AUTHTOKEN_FILE}); or set AGENT_GATEWAY=embedded, with tunnels that are reachable from this machine only`,
    );
  }
  return {
    kind: 'remote',
    authtoken: authtoken ?? (() => ''),
    serverAddr,
    authorities: authorities(values, path, problems),
    proxies: proxyRules(values),
  };
}

function authorities(values: Parsed, path: (value: string) => string, problems: string[]): Authorities | null {
  const word = values.NGROK_CA_CERT?.toLowerCase();
  if (word === 'trusted') return null;
  if (word === 'host') return systemAuthorities(problems);
  const pem = readCertificates('NGROK_CA_CERT', values, path, problems);
  return pem === null ? null : { pem };
}

/** SSL_CERT_FILE is no setting of ours: the SDK reads it from the process's environment, and so do we. */
function systemAuthorities(problems: string[]): Authorities | null {
  try {
    return { host: hostAuthorities(process.env.SSL_CERT_FILE || null) };
  } catch (error) {
    problems.push(`NGROK_CA_CERT=host: ${messageOf(error)}`);
    return null;
  }
}

function proxyRules(values: Parsed): ProxyRules {
  return {
    https: values.HTTPS_PROXY,
    http: values.HTTP_PROXY,
    all: values.ALL_PROXY,
    exempt: values.NO_PROXY ?? (() => false),
  };
}

function embeddedGateway(values: Parsed, chosen: boolean): GatewaySettings {
  return {
    kind: 'embedded',
    chosen,
    domain: values.GATEWAY_DOMAIN ?? 'localhost',
    httpPort: values.GATEWAY_HTTP_PORT ?? 0,
    httpsPort: values.GATEWAY_HTTPS_PORT ?? 0,
    tcpPorts: values.GATEWAY_TCP_PORTS,
    encryptionKey: values.GATEWAY_ENCRYPTION_KEY,
  };
}

function gatewayServerSettings(
  values: Parsed,
  path: (value: string) => string,
  problems: string[],
): GatewayServerSettings {
  const requests = values.GATEWAY_API_RATE_LIMIT ?? 0;
  const delayMs = values.GATEWAY_API_AUTH_DELAY ?? 0;
  return {
    dataDir: path(values.DATA_DIR ?? ''),
    log: logSettings(values),
    host: values.GATEWAY_HOST ?? '',
    domain: values.GATEWAY_DOMAIN ?? '',
    httpPort: values.GATEWAY_HTTP_PORT ?? 0,
    httpsPort: values.GATEWAY_HTTPS_PORT ?? 0,
    tcpPorts: values.GATEWAY_TCP_PORTS,
    sessionPort: values.GATEWAY_SESSION_PORT,
    apiUrl: values.GATEWAY_API_URL,
    encryptionKey: values.GATEWAY_ENCRYPTION_KEY,
    acme: acmeSettings(values, path, problems),
    challengeDns: challengeDnsSettings(values, problems),
    edgeLimits: edgeLimits(values),
    limits: {
      rateLimit: requests === 0 ? null : { requests, windowMs: 60_000 },
      body: { maxBytes: values.GATEWAY_API_BODY_LIMIT ?? 0, timeoutMs: (values.GATEWAY_API_TIMEOUT ?? 0) * 1000 },
      failedAttempts: { free: 10, windowMs: 60_000, delayMs, maxDelayMs: 20 * delayMs },
    },
  };
}

function edgeLimits(values: Parsed): EdgeLimits {
  const milliseconds = (seconds: number | null) => (seconds ?? 0) * 1000;
  return {
    connections: values.GATEWAY_MAX_CONNECTIONS ?? 0,
    handshakeTimeout: milliseconds(values.GATEWAY_HANDSHAKE_TIMEOUT),
    headersTimeout: milliseconds(values.GATEWAY_HEADERS_TIMEOUT),
    headerBytes: values.GATEWAY_HEADERS_LIMIT ?? 0,
    streams: values.GATEWAY_HTTP_STREAMS ?? 0,
    streamIdleTimeout: milliseconds(values.GATEWAY_STREAM_TIMEOUT),
  };
}

function acmeSettings(values: Parsed, path: (value: string) => string, problems: string[]): AcmeSettings | null {
  const domain = values.GATEWAY_DOMAIN ?? '';
  const fallback = isPublic(domain) ? AUTHORITIES.letsencrypt : OWN_AUTHORITY;
  const directoryUrl = values.GATEWAY_ACME_DIRECTORY ?? fallback ?? OWN_AUTHORITY;
  const { GATEWAY_ACME_EAB_KID: kid, GATEWAY_ACME_EAB_HMAC: hmacKey } = values;
  if ((kid === null) !== (hmacKey === null)) {
    problems.push('GATEWAY_ACME_EAB_KID and GATEWAY_ACME_EAB_HMAC: one is set without the other');
  }
  const trust = readCertificates('GATEWAY_ACME_CA_CERT', values, path, problems);
  const ownNames = values.GATEWAY_ACME_OWN_NAMES ?? 'none';
  if (directoryUrl === OWN_AUTHORITY) {
    if (ownNames !== 'none') {
      problems.push(`GATEWAY_ACME_OWN_NAMES="${ownNames}": needs an authority in GATEWAY_ACME_DIRECTORY`);
    }
    return null;
  }
  return {
    directoryUrl,
    contactEmail: values.GATEWAY_ACME_EMAIL,
    externalAccountBinding: kid === null || hmacKey === null ? null : { kid, hmacKey },
    trust: trust?.toString() ?? null,
    resolvers: values.GATEWAY_DNS_RESOLVERS,
    ownNames,
  };
}

/** No public authority certifies other names: of one label, or reserved for use at home (RFC 6761, 6762, 8375). */
function isPublic(domain: string): boolean {
  return domain.includes('.') && !/\.(localhost|local|internal|test|example|invalid|lan|home\.arpa)$/.test(domain);
}

function challengeDnsSettings(values: Parsed, problems: string[]): ChallengeDnsSettings | null {
  const { GATEWAY_DNS_PORT: port, GATEWAY_DOMAIN: domain, GATEWAY_DNS_NAMESERVER: named } = values;
  const nameServer = named ?? `connect.${domain}`;
  if (`.${nameServer}`.endsWith(`.acme.${domain}`)) {
    problems.push(
      `GATEWAY_DNS_NAMESERVER="${nameServer}": lies in the zone acme.${domain} itself, where no addresses are served`,
    );
  }
  return port === null ? null : { port, host: values.GATEWAY_DNS_HOST ?? values.GATEWAY_HOST ?? '', nameServer };
}

function authtokenReader(
  values: Parsed,
  path: (value: string) => string,
  problems: string[],
): (() => string) | undefined {
  const { NGROK_AUTHTOKEN: token, NGROK_AUTHTOKEN_FILE: file } = values;
  if (token !== null) return () => token;
  if (file === null) return undefined;
  let last = readSecretFile('NGROK_AUTHTOKEN_FILE', path(file), problems);
  return () => {
    // A file that cannot be read just now (it is being replaced) must not end a running agent.
    last = readSecretFile('NGROK_AUTHTOKEN_FILE', path(file), []) || last;
    return last;
  };
}

function apiToken(values: Parsed, path: (value: string) => string, problems: string[]): string | null {
  const { AGENT_API_TOKEN: token, AGENT_API_TOKEN_FILE: file } = values;
  if (token === null && file === null) return null;
  const source = token === null ? 'AGENT_API_TOKEN_FILE' : 'AGENT_API_TOKEN';
  const value = token ?? readSecretFile('AGENT_API_TOKEN_FILE', path(file ?? ''), problems);
  if (value !== '' && value.length < 16) {
    problems.push(
      `${source}: the token has ${value.length} characters; at least 16 are needed, as strangers may guess`,
    );
  }
  return value;
}

function readSecretFile(name: VariableName, file: string, problems: string[]): string {
  try {
    const value = readFileSync(file, 'utf8').trim();
    if (value === '') problems.push(`${name}=${file}: the file is empty`);
    else if (/[^\x21-\x7e]/.test(value)) problems.push(`${name}=${file}: the file must hold one line, without blanks`);
    return value;
  } catch (error) {
    problems.push(`${name}=${file}: ${messageOf(error)}`);
    return '';
  }
}

function readCertificates(
  name: 'NGROK_CA_CERT' | 'GATEWAY_ACME_CA_CERT' | 'MANAGEMENT_API_CA_CERT',
  values: Parsed,
  path: (value: string) => string,
  problems: string[],
): Buffer | null {
  const set = values[name];
  if (set === null) return null;
  const file = path(set);
  try {
    const pem = readFileSync(file);
    if (!pem.includes('-----BEGIN CERTIFICATE-----')) problems.push(`${name}=${file}: no PEM certificate in it`);
    return pem;
  } catch (error) {
    problems.push(`${name}=${file}: ${messageOf(error)}`);
    return null;
  }
}
