import { resolve } from 'node:path';
import { type Cidr, canonicalIpv6, isUnspecified } from '../lib/network/ip-address.ts';
import { isWithin, type PortRange } from '../lib/network/port-range.ts';
import type { AcmeSettings, ChallengeDnsSettings } from './certificate-settings.ts';
import { type LogSettings, logSettings } from './common-settings.ts';
import { type Assemble, parseSettings } from './parse-settings.ts';
import { extraAuthorities, readCertificateFile } from './setting-files.ts';
import { gatherTexts, type Texts } from './setting-sources.ts';
import { ACME_DIRECTORIES, type BackupPlan, LOCAL_CA } from './variable-kinds.ts';
import type { Parsed } from './variables.ts';

/** Limits on what clients can use of the edge. */
export interface EdgeLimits {
  /** Simultaneous connections on each public port. */
  readonly connections: number;
  /** Milliseconds from accepting a connection to the end of its TLS handshake. */
  readonly handshakeTimeout: number;
  /** Milliseconds until the headers of a request have arrived. */
  readonly headersTimeout: number;
  /** Bytes of the headers of a request or a response. */
  readonly headerBytes: number;
  /** Concurrent requests on one HTTP/2 connection; 0 disables HTTP/2. */
  readonly streams: number;
  /** Milliseconds without data after which connections to tcp and tls endpoints and to TLS edges are closed. */
  readonly streamIdleTimeout: number;
}

/** Limits on what agents can use of a gateway. */
export interface AgentLimits {
  /** Simultaneous sessions. */
  readonly sessions: number;
  /** Endpoints and labelled tunnels of one session. */
  readonly endpoints: number;
  /** Connections to the upstreams of one session at a time; at most 500. */
  readonly connections: number;
  /** Bytes of options and policies of all endpoints of one authtoken. */
  readonly optionBytes: number;
  /** The share of one processor core that the policies of one authtoken may take, 0 to 1. */
  readonly policyShare: number;
}

/** Settings of the standalone gateway, `device-agent gateway`. */
export interface ParsedSettings {
  dataDir: string;
  log: LogSettings;
  host: string;
  domain: string;
  httpPort: number;
  httpsPort: number;
  /** For tcp endpoints; null: disabled. */
  tcpPorts: PortRange | null;
  /** Where clients reach the gateway when it has no domain; null: it has one. Without brackets, also for IPv6. */
  ip: string | null;
  /** For https and tls endpoints at that address; null: disabled. */
  httpsPorts: PortRange | null;
  /** Extra port for agents; null: none. */
  sessionPort: number | null;
  /** Load balancers, whose connections begin with a PROXY header. */
  balancers: Cidr[];
  /** Networks that are not public, but that traffic policies may reach. */
  policyNetworks: Cidr[];
  /** Paths of databases of locations and networks; null: none. */
  addressDatabases: { geo: string | null; asn: string | null };
  apiUrl: string | null;
  encryptionKey: string | null;
  /** Of the shared database; null: the gateway has one of its own. */
  databaseUrl: string | null;
  /** `host:port` at which other gateways of the shared database reach this one; null: it serves alone. */
  nodeAddress: string | null;
  /** Whether people who have signed in see the endpoints that let them in. */
  listApplications: boolean;
  /** Days for which the audit log is kept. */
  auditLogDays: number;
  /** Days for which the history is kept; 0: there is none. */
  historyDays: number;
  /** From which latency on an endpoint is slow, in milliseconds; 0: from none on. */
  latencyLimitMs: number;
  /** Endpoints that the gateway asks as clients do: names and what is below them; `*`: all. Empty: none. */
  probes: string[];
  /** Null: no daily backups. */
  backups: BackupPlan | null;
  /** The CA of reserved domains' certificates; null: the gateway's local CA. */
  acme: AcmeSettings | null;
  /** Whether certificates of the gateway's own names stay as they are: the settings do not say which names need them. */
  keepsOwnNames: boolean;
  /** DNS server for the challenges of wildcard domains; null: none. */
  challengeDns: ChallengeDnsSettings | null;
  edgeLimits: EdgeLimits;
  /** Without a limit on sessions: as memory and file descriptors allow. */
  agentLimits: Omit<AgentLimits, 'sessions'> & Partial<AgentLimits>;
  limits: {
    /** Null: no limit. */
    rateLimit: { requests: number; windowMs: number } | null;
    body: { maxBytes: number; timeoutMs: number };
    failedAttempts: { free: number; windowMs: number; delayMs: number; maxDelayMs: number };
  };
}

/** The settings and where they come from. */
export interface GatewayServerSettings extends ParsedSettings {
  /** What is set, by the names of variables. */
  texts: Texts;
  /** The file for further settings; it may not exist. */
  settingsFile: string;
}

/** Reads the settings of the standalone gateway. Problems with settings of the agent are ignored. */
export function loadGatewayServerSettings(
  env: NodeJS.ProcessEnv = process.env,
  folder = process.cwd(),
): GatewayServerSettings {
  const texts = gatherTexts(env, folder);
  const settingsFile = resolve(folder, env.SETTINGS_FILE || '.env');
  const { acme, ...parsed } = parseSettings(gatewayServerSettings, texts, folder);
  // What this machine trusts for other reasons is no matter of the devices.
  const issuers = [acme?.root ?? '', extraAuthorities(env)].filter(Boolean).join('\n');
  return { ...parsed, acme: acme && { ...acme, issuers: issuers || null }, texts, settingsFile };
}

/** Where a gateway listens for clients and agents all the time. Ports of tcp endpoints and TLS edges come and go. */
export function gatewayListeners(settings: Pick<ParsedSettings, 'host' | 'httpsPort' | 'httpPort' | 'sessionPort'>) {
  const { host, httpsPort, httpPort, sessionPort } = settings;
  const at = { hostSetting: 'GATEWAY_HOST', host };
  return [
    { ...at, what: 'https', setting: 'GATEWAY_HTTPS_PORT', port: httpsPort },
    { ...at, what: 'http', setting: 'GATEWAY_HTTP_PORT', port: httpPort },
    ...(sessionPort === null
      ? []
      : [{ ...at, what: 'the port for agents', setting: 'GATEWAY_SESSION_PORT', port: sessionPort }]),
  ];
}

const gatewayServerSettings: Assemble<ParsedSettings> = (values, path, problems) => {
  const requests = values.GATEWAY_API_RATE_LIMIT;
  const delayMs = values.GATEWAY_API_AUTH_DELAY;
  const { GATEWAY_DATABASE_URL: databaseUrl, GATEWAY_ENCRYPTION_KEY: encryptionKey } = values;
  if (databaseUrl !== null && encryptionKey === null)
    problems.push('GATEWAY_DATABASE_URL: requires GATEWAY_ENCRYPTION_KEY, the same for all that use the database');
  if (values.GATEWAY_NODE_ADDRESS !== null && databaseUrl === null)
    problems.push('GATEWAY_NODE_ADDRESS: requires GATEWAY_DATABASE_URL, the same for all gateways');
  return {
    dataDir: path(values.DATA_DIR),
    log: logSettings(values),
    host: values.GATEWAY_HOST,
    domain: values.GATEWAY_DOMAIN,
    httpPort: values.GATEWAY_HTTP_PORT,
    httpsPort: values.GATEWAY_HTTPS_PORT,
    tcpPorts: values.GATEWAY_TCP_PORTS,
    ip: publicIp(values, problems),
    httpsPorts: values.GATEWAY_HTTPS_PORTS,
    sessionPort: values.GATEWAY_SESSION_PORT,
    balancers: values.GATEWAY_LOAD_BALANCERS ?? [],
    policyNetworks: values.GATEWAY_POLICY_NETWORKS ?? [],
    addressDatabases: {
      geo: values.GATEWAY_GEO_DATABASE && path(values.GATEWAY_GEO_DATABASE),
      asn: values.GATEWAY_ASN_DATABASE && path(values.GATEWAY_ASN_DATABASE),
    },
    apiUrl: values.GATEWAY_API_URL,
    encryptionKey,
    databaseUrl,
    nodeAddress: values.GATEWAY_NODE_ADDRESS,
    listApplications: values.GATEWAY_LIST_APPLICATIONS,
    auditLogDays: values.GATEWAY_AUDIT_LOG_DAYS,
    historyDays: values.GATEWAY_HISTORY,
    latencyLimitMs: values.GATEWAY_LATENCY_LIMIT,
    probes: values.GATEWAY_PROBES ?? [],
    backups: values.GATEWAY_BACKUPS && { ...values.GATEWAY_BACKUPS, folder: path(values.GATEWAY_BACKUPS.folder) },
    acme: acmeSettings(values, path, problems),
    keepsOwnNames: values.GATEWAY_ACME_OWN_NAMES === null,
    challengeDns: challengeDnsSettings(values, problems),
    edgeLimits: edgeLimits(values),
    agentLimits: {
      ...(values.GATEWAY_MAX_SESSIONS !== null && { sessions: values.GATEWAY_MAX_SESSIONS }),
      endpoints: values.GATEWAY_MAX_ENDPOINTS,
      connections: values.GATEWAY_MAX_STREAMS,
      optionBytes: values.GATEWAY_MAX_OPTIONS,
      policyShare: values.GATEWAY_MAX_POLICY_TIME / 100,
    },
    limits: {
      rateLimit: requests === 0 ? null : { requests, windowMs: 60_000 },
      body: { maxBytes: values.GATEWAY_API_BODY_LIMIT, timeoutMs: values.GATEWAY_API_TIMEOUT * 1000 },
      failedAttempts: { free: 10, windowMs: 60_000, delayMs, maxDelayMs: 20 * delayMs },
    },
  };
};

function publicIp(values: Parsed, problems: string[]): string | null {
  const { GATEWAY_IP: ip, GATEWAY_TCP_PORTS: tcp, GATEWAY_HTTPS_PORTS: https } = values;
  if (ip === null) return null;
  if (isUnspecified(ip) || ip.includes('%'))
    problems.push(`GATEWAY_IP="${ip}": must be one address, which clients can connect to`);
  if (values.GATEWAY_NODE_ADDRESS !== null)
    problems.push(
      'GATEWAY_IP: not supported together with GATEWAY_NODE_ADDRESS: its ports belong to one gateway; use a domain for several gateways',
    );
  if (tcp && https && tcp.first <= https.last && https.first <= tcp.last)
    problems.push('GATEWAY_HTTPS_PORTS: overlaps with GATEWAY_TCP_PORTS; choose other ports');
  // There, a public CA would give the agent of an endpoint a certificate for the address.
  const validated = [80, 443].find((port) =>
    isWithin(
      port,
      [tcp, https].flatMap((range) => range ?? []),
    ),
  );
  if (validated !== undefined)
    problems.push(`GATEWAY_TCP_PORTS, GATEWAY_HTTPS_PORTS: must not include ${validated} with GATEWAY_IP`);
  return ip.includes(':') && !ip.includes('%') ? canonicalIpv6(ip) : ip;
}

function edgeLimits(values: Parsed): EdgeLimits {
  const milliseconds = (seconds: number) => seconds * 1000;
  return {
    connections: values.GATEWAY_MAX_CONNECTIONS,
    handshakeTimeout: milliseconds(values.GATEWAY_HANDSHAKE_TIMEOUT),
    headersTimeout: milliseconds(values.GATEWAY_HEADERS_TIMEOUT),
    headerBytes: values.GATEWAY_HEADERS_LIMIT,
    streams: values.GATEWAY_HTTP_STREAMS,
    streamIdleTimeout: milliseconds(values.GATEWAY_STREAM_TIMEOUT),
  };
}

function acmeSettings(values: Parsed, path: (value: string) => string, problems: string[]): AcmeSettings | null {
  const domain = values.GATEWAY_DOMAIN;
  const fallback = isPublicDomain(domain) ? ACME_DIRECTORIES.letsencrypt : LOCAL_CA;
  const directoryUrl = values.GATEWAY_ACME_DIRECTORY ?? fallback ?? LOCAL_CA;
  const { GATEWAY_ACME_EAB_KID: kid, GATEWAY_ACME_EAB_HMAC: hmacKey } = values;
  if ((kid === null) !== (hmacKey === null)) {
    problems.push('GATEWAY_ACME_EAB_KID and GATEWAY_ACME_EAB_HMAC: set both or neither');
  }
  const trust = readCertificateFile('GATEWAY_ACME_CA_CERT', values, path, problems);
  const ownNames = values.GATEWAY_ACME_OWN_NAMES ?? 'none';
  if (directoryUrl === LOCAL_CA) {
    if (ownNames !== 'none') {
      problems.push(`GATEWAY_ACME_OWN_NAMES="${ownNames}": requires an ACME CA in GATEWAY_ACME_DIRECTORY`);
    }
    return null;
  }
  return {
    directoryUrl,
    contactEmail: values.GATEWAY_ACME_EMAIL,
    externalAccountBinding: kid === null || hmacKey === null ? null : { kid, hmacKey },
    trust: trust?.toString() ?? null,
    root: readCertificateFile('GATEWAY_ACME_ROOT_CERT', values, path, problems)?.toString() ?? null,
    resolvers: values.GATEWAY_DNS_RESOLVERS,
    ownNames,
    profile: values.GATEWAY_ACME_PROFILE,
    chain: values.GATEWAY_ACME_CHAIN,
  };
}

/** Whether public CAs certify a name. They do not for single labels and reserved names (RFC 6761, 6762, 8375). */
export function isPublicDomain(domain: string): boolean {
  return domain.includes('.') && !/\.(localhost|local|internal|test|example|invalid|lan|home\.arpa)$/.test(domain);
}

function challengeDnsSettings(values: Parsed, problems: string[]): ChallengeDnsSettings | null {
  const { GATEWAY_DNS_PORT: port, GATEWAY_DNS_NAMESERVER: named } = values;
  const domain = values.GATEWAY_DOMAIN;
  // Duplicates the gateway's own names: settings must not load the gateway's code.
  const nameServer = named ?? `connect.${domain}`;
  const acmeZone = `acme.${domain}`;
  if (`.${nameServer}`.endsWith(`.${acmeZone}`)) {
    problems.push(
      `GATEWAY_DNS_NAMESERVER="${nameServer}": inside the zone ${acmeZone}, which has no address records; choose a name outside it`,
    );
  }
  return port === null ? null : { port, host: values.GATEWAY_DNS_HOST ?? values.GATEWAY_HOST, nameServer };
}
