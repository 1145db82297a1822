import { parseUpstreamRules } from '../agent/tunnels/upstream-rules.ts';
import type { OwnNamesChoice } from '../gateway/certificates/own-names.ts';
import { LOG_LEVELS, type LogFormat } from '../lib/log.ts';
import {
  acmeDirectory,
  count,
  email,
  hostAndPort,
  hostname,
  noProxy,
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
  GATEWAY_MAX_SESSIONS: count(1000, 100_000, 'sessions of agents at once', 1),
  GATEWAY_MAX_ENDPOINTS: count(10_000, 1_000_000, 'endpoints of one session', 1),
  GATEWAY_MAX_OPTIONS: count(67_108_864, 4_294_967_296, 'bytes for all endpoints of one authtoken', 1_048_576),
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

type Variables = typeof VARIABLES;

export type VariableName = keyof Variables;

export type Parsed = { [N in VariableName]: ReturnType<Variables[N]['parse']> | null };
