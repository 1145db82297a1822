import type { CelInput } from '@bufbuild/cel';
import type { Declarations, VariableKind } from '../cel/check-expression.ts';
import { sizeOf } from '../cel/metered-environment.ts';
import type { Phase } from '../document.ts';
import type { EndpointProtocol, PolicyScope } from '../policy-subjects.ts';
import {
  CERTIFICATE_VARIABLES,
  CONNECTION_VARIABLES,
  NEGOTIATED_VARIABLES,
  terminationName,
} from './connection-variables.ts';
import { REQUEST_VARIABLES, RESPONSE_VARIABLES } from './http-variables.ts';

const ERROR = ['error', 'error.code', 'error.message'];

const SIGN_IN = [
  ...ERROR,
  'identity',
  ...['id', 'email', 'name', 'provider_user_id'].map((member) => `identity.${member}`),
  ...['access_token', 'refresh_token', 'expires_at'],
  ...['session_timed_out', 'session_max_duration_reached', 'userinfo_refreshed'],
];

/** Members of the results that actions record, below `actions.ngrok.<action>.`. Those of terminate-tls are variables. */
const RESULTS: Readonly<Record<string, readonly string[]>> = {
  add_headers: ['headers_added'],
  basic_auth: ['credentials', 'credentials.presented', 'credentials.username', 'credentials.authorized'],
  compress: ['already_compressed', 'negotiated_algorithm'],
  forward_internal: ['url', ...ERROR],
  gateway_share_links: ['let_in', 'link_id'],
  gateway_sign_in: [...SIGN_IN, 'identity.groups'],
  http_request: [
    ...['attempts', 'req', 'req.method', 'req.header', 'req.url', 'req.body'],
    ...['res', 'res.resolved_ip', 'res.header', 'res.status_code', 'res.time_ms', 'res.body'],
    ...ERROR,
  ],
  jwt_validation: ['tokens', ...ERROR],
  log: ['metadata'],
  oauth: [...SIGN_IN, 'identity.current_provider_session_id'],
  oidc: [...SIGN_IN, 'identity.current_session_id', 'identity_token'],
  rate_limit: ['limited', 'bucket_key', ...ERROR],
  redirect: ['matches', 'url', ...ERROR],
  remove_headers: ['headers_removed'],
  request_body_find_replace: ['replacements'],
  response_body_find_replace: ['replacements'],
  restrict_ips: ['action', 'matched_cidr', ...ERROR],
  sse_find_replace: ['replacements'],
  url_rewrite: ['matches', 'url', ...ERROR],
  verify_webhook: ['verified', ...ERROR],
};

const RESULT_NAMES: readonly string[] = [
  'actions.ngrok',
  ...Object.entries(RESULTS).flatMap(([action, members]) => [
    `actions.ngrok.${action}`,
    ...members.map((member) => `actions.ngrok.${action}.${member}`),
  ]),
];

/** Results whose members depend on the policy. */
const OPEN_RESULTS: readonly string[] = [
  ...['actions.ngrok.add_headers.headers_added', 'actions.ngrok.log.metadata'],
  ...['actions.ngrok.http_request.req.header', 'actions.ngrok.http_request.res.header'],
];

const TABLE = { ...CONNECTION_VARIABLES, ...REQUEST_VARIABLES, ...RESPONSE_VARIABLES };
const NAMES: ReadonlySet<string> = new Set(Object.keys(TABLE));
const MEMBERS: ReadonlySet<string> = new Set(RESULT_NAMES);
const OPEN: ReadonlySet<string> = new Set([
  'vars',
  ...OPEN_RESULTS,
  'req.headers',
  'req.trailers',
  'req.cookies',
  'res.headers',
  'res.trailers',
  'res.cookies',
  'req.url.query_params',
  'req.content_type.parameters',
  'res.content_type.parameters',
  'conn.k8s.pod.metadata.annotations',
]);
/** Variables that are no text, and lack a value at most. Values in HTTP are text, which tempts to compare them with text. */
const KINDS: ReadonlyMap<string, VariableKind> = new Map([
  ...['res.status_code', 'req.content_length', 'res.content_length', 'req.url.port', 'endpoint.port'].map(numeric),
  ...['conn.client_port', 'conn.server_port', 'conn.bytes_in', 'conn.bytes_out'].map(numeric),
  ...[...NAMES].filter((name) => name.endsWith('.as.number')).map(numeric),
  ...[...NAMES].filter((name) => /\.is_[a-z_]+$/.test(name)).map((name): [string, VariableKind] => [name, 'bool']),
]);

function numeric(name: string): [string, VariableKind] {
  return [name, 'number'];
}

const ANYWHERE = ['conn', 'endpoint', 'time', 'vars', 'actions'];

function below(...roots: string[]): Declarations {
  return { names: NAMES, members: MEMBERS, kinds: KINDS, open: OPEN, roots: new Set([...ANYWHERE, ...roots]) };
}

const OF_RESPONSES = below('req', 'res');

export const DECLARATIONS: Readonly<Record<Phase, Declarations>> = {
  on_tcp_connect: below(),
  on_http_request: below('req'),
  on_http_response: OF_RESPONSES,
  on_event_stream_message: OF_RESPONSES,
};

const BEFORE_TERMINATION: Declarations = {
  ...DECLARATIONS.on_tcp_connect,
  unknown: {
    names: new Set([...NEGOTIATED_VARIABLES, ...NEGOTIATED_VARIABLES.map(terminationName)]),
    why: 'terminate-tls makes on_tcp_connect run before the TLS handshake; of an https endpoint, on_http_request can read it',
  },
};
const WITHOUT_HANDSHAKE: Declarations = {
  ...DECLARATIONS.on_tcp_connect,
  unknown: {
    names: new Set(CERTIFICATE_VARIABLES),
    why: 'on_tcp_connect of tcp and tls endpoints sees no certificates',
  },
};

export function declarationsOf(policy: {
  readonly protocol: EndpointProtocol;
  readonly internal: boolean;
  /** Whether something other than the policy terminates TLS, before the policy runs. */
  readonly fixedTermination: boolean;
  readonly terminatesTls: boolean;
}): Readonly<Record<Phase, Declarations>> {
  const { protocol, internal, fixedTermination, terminatesTls } = policy;
  // The public endpoint that forwards to an internal one may have terminated TLS.
  if (internal || fixedTermination) return DECLARATIONS;
  if (terminatesTls) return { ...DECLARATIONS, on_tcp_connect: BEFORE_TERMINATION };
  if (protocol === 'http' || protocol === 'https') return DECLARATIONS;
  return { ...DECLARATIONS, on_tcp_connect: WITHOUT_HANDSHAKE };
}

/** Reading a variable costs this much, and one unit for each character, byte, element or member. */
const READ_COST = 10;

/** Getters with dotted names, as the CEL library looks them up; each computes its value when read. */
class Variables {
  constructor(readonly scope: PolicyScope) {}
}

for (const [name, read] of Object.entries(TABLE)) {
  Object.defineProperty(Variables.prototype, name, {
    get(this: Variables) {
      const value = read(this.scope);
      this.scope.budget.spend(READ_COST + sizeOf(value));
      return value;
    },
  });
}

export function variablesOf(scope: PolicyScope): Readonly<Record<string, CelInput | undefined>> {
  return new Variables(scope) as unknown as Readonly<Record<string, CelInput | undefined>>;
}
