import { type CelInput, type CelMap, celList, celMap } from '@bufbuild/cel';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { trimSpace } from '../../lib/http/header-fields.ts';
import type { Budget } from '../cel/budget.ts';
import type { PolicyScope } from '../policy-subjects.ts';
import type { VariableTable } from './connection-variables.ts';
import { firstValue, parseMediaType } from './header-map.ts';
import { hostWithoutPort, pathOf, portOf, queryOf } from './url-parts.ts';

const EMPTY = celMap(new Map());

export const REQUEST_VARIABLES: VariableTable = {
  'req.method': ({ request }) => request?.method,
  'req.host': (scope) => requestHeader(scope, 'host') ?? '',
  'req.version': ({ request }) => request?.version,
  'req.location': (scope) => requestHeader(scope, 'location') ?? '',
  'req.headers': (scope) => scope.requestHeaders,
  'req.trailers': () => EMPTY,
  'req.cookies': (scope) => scope.requestCookies,
  'req.content_type': (scope) => mediaType(requestHeader(scope, 'content-type')),
  'req.content_type.raw': (scope) => requestHeader(scope, 'content-type') ?? '',
  'req.content_type.parameters': (scope) => parameters(requestHeader(scope, 'content-type')),
  'req.content_encoding': (scope) => listed(requestHeader(scope, 'content-encoding')),
  'req.content_length': (scope) => length(requestHeader(scope, 'content-length')),
  'req.ts.header_received': (scope) => timestampFromMs(scope.createdAt),
  'req.ts.body_received': () => undefined,
  'req.url': (scope) => requestUrl(scope),
  'req.url.scheme': ({ endpoint }) => endpoint.protocol,
  'req.url.authority': (scope) => requestHeader(scope, 'host') ?? '',
  'req.url.host': (scope) => hostWithoutPort(requestHeader(scope, 'host') ?? ''),
  'req.url.port': (scope) => {
    const port = portOf(requestHeader(scope, 'host') ?? '');
    return port === undefined ? undefined : BigInt(port);
  },
  'req.url.path': (scope) => scope.path,
  'req.url.raw_path': (scope) => pathOf(target(scope)),
  'req.url.query': (scope) => queryOf(target(scope)),
  'req.url.query_params': (scope) => scope.queryParameters,
  'req.url.uri': (scope) => target(scope),
  'req.url.raw': (scope) => requestUrl(scope),
  'req.url.user_password': () => '',
  'req.user_agent': (scope) => requestHeader(scope, 'user-agent') ?? '',
  ...Object.fromEntries(
    (
      [
        'name',
        'version',
        'os',
        'os_version',
        'device',
        'url',
        'is_mobile',
        'is_tablet',
        'is_desktop',
        'is_bot',
      ] as const
    ).map((field) => [`req.user_agent.${field}`, (scope: PolicyScope) => scope.userAgent[field]]),
  ),
};

export const RESPONSE_VARIABLES: VariableTable = {
  'res.status_code': ({ response }) => (response ? BigInt(response.status) : undefined),
  'res.headers': (scope) => scope.responseHeaders,
  'res.trailers': () => EMPTY,
  'res.location': (scope) => responseHeader(scope, 'location') ?? '',
  'res.cookies': (scope) => scope.responseCookies,
  'res.content_type': (scope) => mediaType(responseHeader(scope, 'content-type')),
  'res.content_type.raw': (scope) => responseHeader(scope, 'content-type') ?? '',
  'res.content_type.parameters': (scope) => parameters(responseHeader(scope, 'content-type')),
  'res.content_encoding': (scope) => listed(responseHeader(scope, 'content-encoding')),
  'res.content_length': (scope) => length(responseHeader(scope, 'content-length')),
};

function requestHeader({ request, budget }: PolicyScope, name: string): string | undefined {
  return charged(request?.headers ?? [], name, budget);
}

function responseHeader({ response, budget }: PolicyScope, name: string): string | undefined {
  return charged(response?.headers ?? [], name, budget);
}

/** Charges for the search and for the length of the header: most are parsed at every read. */
function charged(headers: readonly string[], name: string, budget: Budget): string | undefined {
  const header = firstValue(headers, name);
  budget.spend(headers.length + (header?.length ?? 0));
  return header;
}

function target({ request }: PolicyScope): string {
  return request?.target ?? '';
}

/** The absolute URL of the request, from the client's point of view. */
export function requestUrl(scope: PolicyScope): string {
  return `${scope.endpoint.protocol}://${requestHeader(scope, 'host') ?? ''}${target(scope)}`;
}

function mediaType(header: string | undefined): string {
  return header === undefined ? '' : parseMediaType(header).type;
}

function parameters(header: string | undefined): CelMap {
  return header === undefined ? EMPTY : celMap(parseMediaType(header).parameters);
}

function listed(header: string | undefined): CelInput {
  return celList(header === undefined ? [] : header.split(',').map((part) => trimSpace(part).toLowerCase()));
}

function length(header: string | undefined): bigint | undefined {
  return header !== undefined && /^\d{1,18}$/.test(header) ? BigInt(header) : undefined;
}
