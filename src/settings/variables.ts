import { LOG_LEVELS, type LogFormat } from '../lib/log/log.ts';
import type { OwnNamesChoice } from './certificate-settings.ts';
import { parseUpstreamRules, type UpstreamRules } from './upstream-rules.ts';
import {
  acmeDirectory,
  backupPlan,
  budgetPlan,
  chosenCount,
  cidrs,
  count,
  databaseUrl,
  deviceLabel,
  email,
  encryptionKey,
  file,
  flag,
  hostAndPort,
  hostname,
  ipAddress,
  listenHost,
  noProxy,
  oneOf,
  origin,
  port,
  portRange,
  probedNames,
  proxy,
  resolvers,
  secret,
  text,
  type Variable,
} from './variable-kinds.ts';

const CONNECTION = {
  AGENT_GATEWAY: oneOf(
    'Which gateway the agent connects to. `remote`: ngrok’s cloud or NGROK_SERVER_ADDR; the agent does not start without an authtoken (default of the service and the image). `embedded`: its own, reachable from this machine only. `auto`: embedded when neither an authtoken nor NGROK_SERVER_ADDR is set',
    ['auto', 'remote', 'embedded'],
    'auto',
  ),
  NGROK_AUTHTOKEN: secret('Authtoken of the agent’s sessions', 'an authtoken'),
  NGROK_AUTHTOKEN_FILE: file(
    'File with nothing but the authtoken; read again for each connection',
    '/run/credentials/ngrok-authtoken',
  ),
  NGROK_SERVER_ADDR: hostAndPort('Address of another gateway', {
    otherwise: 'ngrok’s cloud',
    example: 'connect.gateway.example.com:443',
  }),
  NGROK_CA_CERT: text(
    'CAs that may sign the gateway’s certificate. `host`: those that the operating system trusts; `trusted`: ngrok’s own CA',
    'the path of a PEM file with one or more CA certificates, host, or trusted',
    { otherwise: '`trusted`', example: '/etc/device-agent/gateway-ca.pem' },
  ),
  AGENT_TIME_CA: text(
    'The gateway’s own CA, where `NGROK_CA_CERT` is `host`: it signs the time for a device whose clock is wrong, and then stands for the gateway’s certificate. `device-agent join` sets it; remove it when you change `NGROK_SERVER_ADDR`',
    'the path of a PEM file with a CA certificate',
    { otherwise: 'the CAs in `NGROK_CA_CERT`', example: '/etc/device-agent/gateway-ca.pem' },
  ),
  AGENT_CONNECTOR: oneOf(
    'What carries the agent’s sessions. `sdk`: @ngrok/ngrok. `native`: code of this project, for gateways of your own only; chosen automatically there when the SDK has no binary for this platform',
    ['sdk', 'native'],
    'sdk',
  ),
  AGENT_DATA_BUDGET: budgetPlan(
    'How much the device may send and receive on its way to the gateway; implies `AGENT_LINK=metered`, and needs `AGENT_CONNECTOR=native`. At 95 %, tunnels pause; the rest keeps the device reachable now and then',
  ),
  AGENT_LINK: oneOf(
    'What data on the way to the gateway costs. `metered`, for a SIM card: heartbeats are a minute apart, a second gateway is only connected when the first is lost, pages refresh less often',
    ['default', 'metered'],
    'default',
  ),
};

const PROXIES = {
  HTTPS_PROXY: proxy(
    'Proxy for the gateway and for a management API with TLS. This and the next three are also read in lower case',
    'http://proxy.lan:3128',
  ),
  HTTP_PROXY: proxy('Proxy for a management API without TLS', 'http://proxy.lan:3128'),
  ALL_PROXY: proxy('Proxy for connections without a proxy of their own', 'socks5://proxy.lan:1080'),
  NO_PROXY: noProxy(
    'Destinations that bypass the proxies; a host includes its subdomains',
    'localhost,.lan,10.0.0.0/8',
  ),
};

const AGENT_API = {
  AGENT_HOST: listenHost('Address that the local API listens on; any but loopback requires the API token', '127.0.0.1'),
  AGENT_PORT: port('Port of the local API', { default: '4040' }),
  AGENT_DOMAIN: hostname('Domain on which the API is reachable remotely', {
    otherwise: 'no remote access; `agent.<domain>` with the embedded gateway',
    example: 'agent.site-a.example.com',
  }),
  AGENT_API_TOKEN: secret('API token for remote calls', 'a token of at least 16 characters', {
    otherwise: 'generated into DATA_DIR',
  }),
  AGENT_API_TOKEN_FILE: file('File with nothing but the API token', '/run/credentials/agent-api-token'),
  AGENT_API_AUTH: oneOf(
    'Authentication of remote calls. `none`: anyone who knows the domain can create tunnels',
    ['token', 'none'],
    'token',
  ),
};

const SITE = {
  AGENT_JOIN_CODE: secret(
    'Code with which the device joins a site at its first start; `device-agent gateway invite` prints it. What it gets is kept in DATA_DIR and counts less than other settings',
    'a code of `device-agent gateway invite`',
  ),
  AGENT_SITE: hostname(
    'Domain of the site that the device belongs to: tunnels without a domain, or with a single label, get names below it. `device-agent join` sets it',
    { otherwise: 'the gateway chooses names', example: 'site-a.example.com' },
  ),
  AGENT_NAME: deviceLabel(
    'Name of the device at its site: names of its tunnels are `<label>-<name>.<site>`, or `<label>.<site>` if no other device has that. `device-agent join` sets it, and without it asks for the hostname',
    { otherwise: 'tunnels are `<label>.<site>`', example: 'cabinet-7' },
  ),
};

const TUNNELS = {
  AGENT_ALLOW_UPSTREAMS: {
    meaning:
      'Upstreams that `forwards_to` may name. `unix`: sockets of the agent’s own user, outside system folders and open to others; `unix:/path`: that socket or all sockets in that folder',
    default: 'loopback,private,unix',
    allowed:
      'a comma-separated list of hosts, *.suffixes, CIDRs, loopback, private and any, each with an optional :port; and of unix and unix:/path',
    parse: parseUpstreamRules,
  } satisfies Variable<UpstreamRules>,
  AGENT_VERIFY_UPSTREAM_TLS: flag(
    'Verify the certificates of https upstreams whose tunnel does not say it with `upstream_tls_verify`. `false`: accept self-signed ones (cameras, routers)',
    true,
  ),
  DEFAULT_POLICIES: file(
    'Default policies of tunnels without a policy of their own',
    '/etc/device-agent/policies.json',
    {
      otherwise: 'the packaged `defaults/policies.json`',
    },
  ),
  AGENT_TUNNELS_DIR: file(
    'Folder with YAML or JSON files that declare tunnels, which are created or changed at the start',
    '/etc/device-agent/tunnels.d',
    { otherwise: 'none; `/etc/device-agent/tunnels.d` for the service' },
  ),
};

const UPDATES = {
  AGENT_UPDATE: oneOf(
    'Which releases the service installs without being asked, at night: those that fix a vulnerability of the installed version, or all of the stable channel. The device goes back if the new version does not work. On a machine with a gateway alone, these two belong to the gateway’s settings',
    ['off', 'security', 'stable'],
    'off',
  ),
  AGENT_UPDATE_FROM: text(
    'Where releases come from',
    'an https URL of a folder, the path of one, or `gateway`: those that the operator of the gateway of this device has approved',
    {
      otherwise: 'where the program was published',
      example: 'https://mirror.example.com/device-agent',
    },
  ),
};

const GATEWAY = {
  GATEWAY_DOMAIN: hostname('Base domain of endpoints', { default: 'localhost' }),
  GATEWAY_HTTPS_PORT: port('Public HTTPS port', { default: '8443' }),
  GATEWAY_HTTP_PORT: port('Public HTTP port', { default: '8080' }),
  GATEWAY_TCP_PORTS: portRange('Ports for tcp endpoints, each open only while an endpoint uses it', '20000-20999'),
  GATEWAY_ENCRYPTION_KEY: encryptionKey('Key that encrypts the private keys in the database', {
    otherwise: 'generated into DATA_DIR',
  }),
};

const STANDALONE_GATEWAY = {
  GATEWAY_DATABASE_URL: databaseUrl(
    'Shared PostgreSQL database that has the gateway’s data; DATA_DIR then only has a copy. Requires GATEWAY_ENCRYPTION_KEY',
    { otherwise: 'a database in DATA_DIR', example: 'postgres://gateway:secret@db.example.com/gateway' },
  ),
  GATEWAY_NODE_ADDRESS: hostAndPort(
    'Where the other gateways of the shared database reach the HTTPS port of this one: it serves together with them. Requires GATEWAY_DATABASE_URL',
    { otherwise: 'it serves alone', example: '10.0.0.11:443' },
  ),
  GATEWAY_HOST: ipAddress('Address to listen on; `0.0.0.0` for all, `::` for all including IPv6', {
    default: '127.0.0.1',
  }),
  GATEWAY_IP: ipAddress(
    'Public IP address of a gateway that needs no domain: its https and tls endpoints get ports of GATEWAY_HTTPS_PORTS at this address instead of names',
    {
      allowed: 'an IP address at which clients and devices reach this gateway',
      otherwise: 'none; endpoints have names below GATEWAY_DOMAIN',
      example: '203.0.113.5',
    },
  ),
  GATEWAY_HTTPS_PORTS: portRange(
    'With GATEWAY_IP: ports for https and tls endpoints, each open only while an endpoint uses it',
    '21000-21999',
  ),
  GATEWAY_SESSION_PORT: port('Extra port for agents, which can always connect to connect.<domain> on the HTTPS port', {
    example: '4443',
  }),
  GATEWAY_LOAD_BALANCERS: cidrs(
    'Load balancers in front of the gateway: their connections begin with a PROXY header (version 1 or 2), which says who the client is',
    { otherwise: 'none; who connects is the client', example: '10.0.0.5,10.1.0.0/16' },
  ),
  GATEWAY_POLICY_NETWORKS: cidrs(
    'Private networks, or addresses of this machine, that all traffic policies may reach, for identity providers, keys of tokens and `http-request`, and destinations of events',
    { otherwise: 'none; public addresses only', example: '10.0.0.7,10.2.0.0/16' },
  ),
  GATEWAY_GEO_DATABASE: text(
    'Database of the cities or countries of IP addresses, for the variables `conn.geo.…` of traffic policies. Read again when it is replaced',
    'the path of an MMDB file',
    { example: '/var/lib/GeoIP/GeoLite2-City.mmdb' },
  ),
  GATEWAY_ASN_DATABASE: text(
    'Database of the networks of IP addresses, for the variables `conn.client_ip.as.…` of traffic policies. Read again when it is replaced',
    'the path of an MMDB file',
    { example: '/var/lib/GeoIP/GeoLite2-ASN.mmdb' },
  ),
  GATEWAY_API_URL: origin('Origin at which clients reach the management API', {
    otherwise: '`https://api.<domain>` with the HTTPS port',
  }),
  GATEWAY_LIST_APPLICATIONS: flag(
    'Whether people of the gateway who have signed in see a list at `sign-in.<domain>`: the endpoints online whose policies let them in',
    false,
  ),
  GATEWAY_AUDIT_LOG_DAYS: count(
    'Days for which the gateway keeps who has changed what, and events wait for a destination',
    90,
    3650,
    1,
  ),
  GATEWAY_HISTORY: count(
    'Days for which the gateway keeps what has happened at endpoints and devices: by the minute for three hours, by the hour for 30 days, then by the day; `0`: nothing',
    395,
    3650,
  ),
  GATEWAY_LATENCY_LIMIT: count(
    'Milliseconds from which on an endpoint is slow, if half of its responses take longer: the condition `latency`; `0`: never',
    5_000,
    10_000,
  ),
  GATEWAY_PROBES: probedNames(
    'Endpoints that the gateway asks as clients do, four times a minute: it names the stage that broke',
    { otherwise: 'none', example: 'site-a.example.com' },
  ),
  GATEWAY_BACKUPS: backupPlan(
    'Daily backups: the folder, the hour by the machine’s clock (default: 3), and how many are kept (default: 7). They are without the encryption key',
  ),
  GATEWAY_API_RATE_LIMIT: count('Management requests per minute and API key; `0`: no limit', 0, 1_000_000),
  GATEWAY_API_BODY_LIMIT: count('Bytes of a management request’s body', 1_048_576, 16_777_216, 1),
  GATEWAY_API_TIMEOUT: count('Seconds a management request may take to arrive', 30, 3600, 1),
  GATEWAY_API_AUTH_DELAY: count('Milliseconds by which each further wrong API key is delayed', 250, 60_000),
  GATEWAY_MAX_CONNECTIONS: count(
    'Simultaneous client connections on each port. When full, idle connections are closed first; while all are busy, new ones are rejected',
    8192,
    1_000_000,
    1,
  ),
  GATEWAY_MAX_SESSIONS: chosenCount(
    'Simultaneous agent sessions. When full, the authtoken with the most sessions loses one to an authtoken with fewer. File descriptors limit them, too',
    'one for each 64 KiB of half of the memory',
    100_000,
    1,
  ),
  GATEWAY_MAX_ENDPOINTS: count('Endpoints of one session', 10_000, 1_000_000, 1),
  GATEWAY_MAX_STREAMS: count(
    'Simultaneous connections to the upstreams of one session. When full, clients wait up to five seconds, then get 503; the SDK of ngrok allows no more than 500',
    500,
    500,
    1,
  ),
  GATEWAY_MAX_OPTIONS: count(
    'Bytes of options and policies, as sent and compiled, of all endpoints of one authtoken, plus 1,024 for each endpoint',
    67_108_864,
    4_294_967_296,
    1_048_576,
  ),
  GATEWAY_MAX_POLICY_TIME: count(
    'Percent of one processor core that the traffic policies of one authtoken may take on average, and as much again for compression; beyond it, its requests get 503, or uncompressed responses',
    25,
    100,
    1,
  ),
  GATEWAY_HANDSHAKE_TIMEOUT: count('Seconds a TLS handshake may take', 10, 600, 1),
  GATEWAY_HEADERS_TIMEOUT: count('Seconds the headers of a request may take to arrive', 30, 600, 1),
  GATEWAY_HEADERS_LIMIT: count('Bytes of the headers of a request or a response', 65_536, 1_048_576, 1024),
  GATEWAY_HTTP_STREAMS: count('Concurrent requests on one HTTP/2 connection; `0` disables HTTP/2', 100, 1000),
  GATEWAY_STREAM_TIMEOUT: count(
    'Seconds without data after which connections to tcp and tls endpoints and TLS edges are closed',
    3600,
    604_800,
    1,
  ),
};

const CERTIFICATES = {
  GATEWAY_ACME_DIRECTORY: acmeDirectory(
    'CA that issues the certificates of reserved domains with a management policy. `local`: the gateway’s own CA, which only clients with its ca.pem trust',
    { otherwise: '`letsencrypt`; `local` when the base domain is not public', example: 'letsencrypt' },
  ),
  GATEWAY_ACME_OWN_NAMES: {
    ...oneOf<OwnNamesChoice>(
      'Certificates of that CA for the gateway’s own names. `public`: endpoints and the management API; `all`: also the name that agents connect to, which SDKs in other programs that trust only ca.pem then reject',
      ['none', 'public', 'all'],
      'none',
    ),
    default: null,
    otherwise: 'as before; `none` at first',
    example: 'public',
  },
  GATEWAY_ACME_EMAIL: email('Where the CA sends notices'),
  GATEWAY_ACME_EAB_KID: text('External account binding: key identifier', 'the key identifier from the CA'),
  GATEWAY_ACME_EAB_HMAC: secret('External account binding: key', 'the key of that identifier, in base64url'),
  GATEWAY_ACME_CA_CERT: file('CA of the ACME server’s own certificate', '/etc/device-agent-gateway/acme-ca.pem', {
    otherwise: 'the public CAs',
  }),
  GATEWAY_ACME_ROOT_CERT: file(
    'Root that the certificates of that CA lead to, for the gateway’s own commands, its probes, and devices; a private or staging CA has one that is not public',
    '/etc/device-agent-gateway/acme-root.pem',
    { otherwise: 'the public CAs, and those of `NODE_EXTRA_CA_CERTS`' },
  ),
  GATEWAY_ACME_PROFILE: text('Certificate profile to order, by the name that the CA gives it', 'a profile of the CA', {
    otherwise: 'the CA’s default; for IP addresses `shortlived` where the CA has it',
    example: 'shortlived',
  }),
  GATEWAY_ACME_CHAIN: text('Chain to serve, by the common name of its topmost issuer', 'the common name of a CA', {
    otherwise: 'the chain that the CA sends first',
    example: 'ISRG Root X1',
  }),
  GATEWAY_DNS_PORT: port('Port of the DNS server that wildcard certificates need; resolvers ask port 53', {
    otherwise: 'no DNS server',
    example: '53',
  }),
  GATEWAY_DNS_HOST: ipAddress('Address that the DNS server listens on', {
    otherwise: 'GATEWAY_HOST',
    example: '0.0.0.0',
  }),
  GATEWAY_DNS_NAMESERVER: hostname('Host in the NS record of acme.<domain>; outside that zone', {
    otherwise: '`connect.<domain>`',
    example: 'connect.gateway.example.com',
  }),
  GATEWAY_DNS_RESOLVERS: resolvers('Resolvers that check DNS records before a certificate is ordered', {
    otherwise: 'those of the operating system',
    example: '1.1.1.1,9.9.9.9',
  }),
};

const MANAGEMENT_CLIENT = {
  MANAGEMENT_API_URL: origin('Origin of the management API'),
  MANAGEMENT_API_KEY: secret('API key', 'an API key'),
  MANAGEMENT_API_CA_CERT: file('CA of that API’s certificate: a copy of the gateway’s ca.pem', 'gateway-ca.pem', {
    otherwise: 'the public CAs',
  }),
};

const COMMON = {
  DATA_DIR: text('Folder for all state', 'a folder', { default: 'data' }),
  DEVICE_AGENT_COMMAND: text(
    'How people type this program, for the commands in messages; cannot be set in .env',
    'a command line',
    { otherwise: 'found out', example: 'docker compose exec device-agent node dist/cli.js' },
  ),
  SETTINGS_FILE: file(
    'Another file like .env that overrides the environment; cannot be set in .env',
    '/etc/device-agent/settings.env',
  ),
  LOG_LEVEL: oneOf('Lowest level that is logged', LOG_LEVELS, 'info'),
  LOG_REQUESTS: flag(
    'Log a line for each HTTP request of a tunnel, by the agent: method, path, status, time and bytes. Tunnels then take the way through the agent',
    false,
  ),
  LOG_FORMAT: oneOf<LogFormat | 'auto'>(
    'Log format. `auto`: `pretty` on a terminal, `json` elsewhere',
    ['auto', 'json', 'pretty'],
    'auto',
  ),
};

/** The settings as docs/settings.md and .env.example group them. */
export const SETTING_GROUPS: readonly {
  title: string;
  usedBy: string;
  variables: Record<string, Variable<unknown>>;
}[] = [
  { title: 'Connection to the gateway', usedBy: 'the agent', variables: CONNECTION },
  { title: 'Proxies', usedBy: 'the agent, `setup`', variables: PROXIES },
  { title: 'The agent’s API', usedBy: 'the agent', variables: AGENT_API },
  { title: 'Site', usedBy: 'the agent, `join`', variables: SITE },
  { title: 'Tunnels', usedBy: 'the agent', variables: TUNNELS },
  { title: 'Updates', usedBy: '`update`, the service', variables: UPDATES },
  { title: 'Gateway', usedBy: 'the embedded and the standalone gateway', variables: GATEWAY },
  { title: 'Standalone gateway', usedBy: '`gateway`', variables: STANDALONE_GATEWAY },
  { title: 'Certificates of the standalone gateway', usedBy: '`gateway`', variables: CERTIFICATES },
  { title: 'Management client', usedBy: '`setup`', variables: MANAGEMENT_CLIENT },
  { title: 'Storage and log', usedBy: 'every command', variables: COMMON },
];

/** Every setting of the program. */
export const VARIABLES = {
  ...CONNECTION,
  ...PROXIES,
  ...AGENT_API,
  ...SITE,
  ...TUNNELS,
  ...UPDATES,
  ...GATEWAY,
  ...STANDALONE_GATEWAY,
  ...CERTIFICATES,
  ...MANAGEMENT_CLIENT,
  ...COMMON,
} satisfies Record<string, Variable<unknown>>;

type Variables = typeof VARIABLES;

export type VariableName = keyof Variables;

export type Parsed = {
  [N in VariableName]: ReturnType<Variables[N]['parse']> | (Variables[N]['default'] extends string ? never : null);
};
