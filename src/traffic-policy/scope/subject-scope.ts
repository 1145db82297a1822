import { type CelInput, type CelMap, celList, celMap } from '@bufbuild/cel';
import { create } from '@bufbuild/protobuf';
import { DurationSchema, timestampFromMs } from '@bufbuild/protobuf/wkt';
import { trimSpace } from '../../lib/http/header-fields.ts';
import { Budget } from '../cel/budget.ts';
import { celOf } from '../cel/values.ts';
import { KeptValues } from '../kept-values.ts';
import { PolicyFailure } from '../policy-errors.ts';
import type {
  PolicyConnection,
  PolicyEndpoint,
  PolicyRequest,
  PolicyResponse,
  PolicyScope,
  PolicyTls,
  Until,
} from '../policy-subjects.ts';
import type { PolicyPorts } from '../ports.ts';
import { certificateVariables } from './certificate-variables.ts';
import { addressVariables, UNKNOWN_ADDRESS } from './connection-variables.ts';
import { allValues, headerMap } from './header-map.ts';
import { HeldMemory } from './held-memory.ts';
import { variablesOf } from './policy-variables.ts';
import { decodedPath, pathOf, queryOf, queryParameters } from './url-parts.ts';
import { parseUserAgent, type UserAgent } from './user-agent.ts';

/** Computed from a request or response when first read, until an action changes it. */
interface Derived {
  requestHeaders?: CelMap;
  responseHeaders?: CelMap;
  requestCookies?: CelMap;
  responseCookies?: CelMap;
  queryParameters?: CelMap;
  path?: string;
  userAgent?: UserAgent;
}

/** The cost of what is parsed once for many reads, per character or byte, in units of the budget. */
const PATTERN_COST = 10;
const CERTIFICATE_COST = 20;
/** The cost of looking an address up in all databases. */
const ADDRESS_COST = 2000;

/** Bytes of memory of all variables of a phase, and of all results. */
const MAX_VARIABLES = 128 * 1024;
const MAX_RESULTS = 1024 * 1024;
/** Bytes of the results of on_tcp_connect, which last as long as a connection: those are limited by number. */
const MAX_OF_CONNECTION = 8192;

type Certificate = Record<string, CelInput> | null;

/** Parsed once per connection: it takes about a millisecond. Null for a side that presented none. */
const certificates = new WeakMap<PolicyTls, { client?: Certificate; server?: Certificate }>();

export class SubjectScope implements PolicyScope {
  response: PolicyResponse | null = null;
  readonly createdAt: number;
  readonly variables: Readonly<Record<string, CelInput | undefined>>;
  readonly budget: Budget;
  #vars: KeptValues | null = null;
  /** Null as long as no action of this subject has recorded one: what the connection's own phase recorded is valid. */
  #results: KeptValues | null = null;
  #memory: HeldMemory | null = null;
  #isRunning = false;
  #derived: Derived = {};
  #addresses: { client?: Readonly<Record<string, CelInput>>; server?: Readonly<Record<string, CelInput>> } | null =
    null;

  constructor(
    private readonly ports: PolicyPorts,
    readonly connection: PolicyConnection,
    readonly endpoint: PolicyEndpoint,
    readonly request: PolicyRequest | null,
  ) {
    this.createdAt = ports.wallClock();
    this.budget = new Budget(ports.clock);
    this.variables = variablesOf(this);
  }

  begin(response: PolicyResponse | null): void {
    this.response = response;
    this.#vars = null;
    this.#derived = {};
    this.#isRunning = true;
    this.#memory?.begin();
    this.budget.renew();
  }

  end(isOver: boolean): void {
    this.#derived = {};
    this.#isRunning = false;
    if (isOver) this.#vars = null;
    this.#memory?.end(isOver);
  }

  hold(bytes: number, until: Until): void {
    // The connection's own phase never waits.
    if (this.request === null) return;
    this.#memory ??= new HeldMemory(this.ports.valueMemory, this.request, this.#isRunning);
    this.#memory.hold(bytes, until);
  }

  changed(): void {
    this.#derived = {};
  }

  now(): number {
    return this.ports.wallClock();
  }

  random(): number {
    return this.ports.clock.random();
  }

  secret(vault: string, name: string): string | null {
    return this.ports.secret(vault, name);
  }

  setVariable(name: string, value: CelInput): void {
    this.#vars ??= new KeptValues();
    const more = this.#vars.set(name, value, MAX_VARIABLES);
    if (more === null) throw new PolicyFailure('ERR_NGROK_2249', `vars.${name} is too large`);
    this.hold(more, 'phase');
  }

  setResult(action: string, result: object): void {
    this.#results ??= new KeptValues(this.connection.results);
    const more = this.#results.set(action, celOf(result), this.request === null ? MAX_OF_CONNECTION : MAX_RESULTS);
    if (more === null) throw new PolicyFailure('ERR_NGROK_2300', `actions.ngrok.${action} is too large`);
    this.hold(more, 'response');
    // Every request on the connection reads the results of the connection's own phase.
    if (this.request === null) this.connection.results = this.#results.values;
  }

  result(action: string): CelInput | undefined {
    return this.#resultValues?.get(action);
  }

  get vars(): CelMap {
    return celMap(this.#vars?.values ?? new Map());
  }

  get actions(): CelMap {
    return celMap(new Map([['ngrok', celMap(this.#resultValues ?? new Map())]]));
  }

  get #resultValues(): ReadonlyMap<string, CelInput> | undefined {
    return this.#results?.values ?? this.connection.results;
  }

  get requestHeaders(): CelMap {
    this.#derived.requestHeaders ??= headerMap(this.#charged(this.request?.headers));
    return this.#derived.requestHeaders;
  }

  get responseHeaders(): CelMap {
    this.#derived.responseHeaders ??= headerMap(this.#charged(this.response?.headers));
    return this.#derived.responseHeaders;
  }

  get requestCookies(): CelMap {
    this.#derived.requestCookies ??= requestCookies(this.#charged(this.request?.headers));
    return this.#derived.requestCookies;
  }

  get responseCookies(): CelMap {
    this.#derived.responseCookies ??= responseCookies(this.#charged(this.response?.headers));
    return this.#derived.responseCookies;
  }

  get path(): string {
    this.#derived.path ??= decodedPath(pathOf(this.#target));
    return this.#derived.path;
  }

  get queryParameters(): CelMap {
    this.#derived.queryParameters ??= queryParameters(queryOf(this.#target));
    return this.#derived.queryParameters;
  }

  get userAgent(): UserAgent {
    this.#derived.userAgent ??= this.#parsedUserAgent();
    return this.#derived.userAgent;
  }

  #parsedUserAgent(): UserAgent {
    const header = this.variables['req.user_agent'];
    const text = typeof header === 'string' ? header : '';
    this.budget.spend(text.length * PATTERN_COST);
    return parseUserAgent(text);
  }

  certificate(side: 'client' | 'server'): Record<string, CelInput> | undefined {
    const { tls } = this.connection;
    if (tls === null) return undefined;
    const known = certificates.get(tls) ?? {};
    certificates.set(tls, known);
    if (known[side] === undefined) {
      const der = side === 'client' ? tls.clientCertificate : tls.serverCertificate;
      if (der) this.budget.spend(der.length * CERTIFICATE_COST);
      known[side] = der && certificateVariables(der);
    }
    return known[side] ?? undefined;
  }

  address(side: 'client' | 'server'): Readonly<Record<string, CelInput>> {
    const { clientIp, serverIp } = this.connection;
    this.#addresses ??= {};
    this.#addresses[side] ??= this.#found(side === 'client' ? clientIp : serverIp);
    return this.#addresses[side];
  }

  #found(address: string): Readonly<Record<string, CelInput>> {
    const records = this.ports.findAddress(address);
    if (records === null) return UNKNOWN_ADDRESS;
    this.budget.spend(ADDRESS_COST);
    return addressVariables(records);
  }

  get #target(): string {
    const target = this.request?.target ?? '';
    this.budget.spend(target.length);
    return target;
  }

  #charged(headers: readonly string[] = []): readonly string[] {
    let length = 0;
    for (const part of headers) length += part.length;
    this.budget.spend(length);
    return headers;
  }
}

/** More than any browser sends. */
const MAX_COOKIES = 300;

export function requestCookies(headers: readonly string[]): CelMap {
  const pairs = allValues(headers, 'cookie')
    .join(';')
    .split(';', MAX_COOKIES)
    .map((pair) => splitPair(pair))
    .filter(({ name }) => name !== '');
  return byName(pairs);
}

/** @returns a map of names to lists of cookies with their attributes, longest path first */
function responseCookies(headers: readonly string[]): CelMap {
  const cookies = allValues(headers, 'set-cookie').slice(0, MAX_COOKIES).map(parseSetCookie);
  cookies.sort((one, other) => other.path.length - one.path.length);
  return byName(cookies);
}

function byName(cookies: readonly ({ name: string } & Record<string, CelInput>)[]): CelMap {
  const lists = new Map<string, CelInput[]>();
  for (const cookie of cookies) {
    const known = lists.get(cookie.name) ?? [];
    known.push(celMap(new Map(Object.entries(cookie))));
    lists.set(cookie.name, known);
  }
  return celMap(new Map(Array.from(lists, ([name, list]) => [name, celList(list)])));
}

function splitPair(text: string): { name: string; value: string } {
  const equals = text.indexOf('=');
  if (equals === -1) return { name: '', value: trimSpace(text) };
  return {
    name: trimSpace(text, 0, equals),
    value: trimSpace(text, equals + 1).replace(/^"(.*)"$/, '$1'),
  };
}

/** RFC 6265, section 5.2. */
function parseSetCookie(header: string) {
  const [pair = '', ...rest] = header.split(';');
  const attributes = new Map<string, string>();
  const unparsed: string[] = [];
  for (const part of rest) {
    const [name = '', value = ''] = part.split(/=(.*)/s).map((text) => trimSpace(text));
    const lower = name.toLowerCase();
    if (KNOWN.has(lower)) attributes.set(lower, value);
    else if (name !== '') unparsed.push(trimSpace(part));
  }
  const expires = Date.parse(attributes.get('expires') ?? '');
  const maxAge = attributes.get('max-age') ?? '';
  return {
    ...splitPair(pair),
    domain: attributes.get('domain') ?? '',
    path: attributes.get('path') ?? '',
    expires: timestampFromMs(Number.isNaN(expires) ? 0 : expires),
    max_age: create(DurationSchema, { seconds: /^-?\d{1,12}$/.test(maxAge) ? BigInt(maxAge) : 0n }),
    http_only: attributes.has('httponly'),
    secure: attributes.has('secure'),
    same_site: attributes.get('samesite') ?? '',
    unparsed_attributes: celList(unparsed),
  };
}

const KNOWN: ReadonlySet<string> = new Set(['domain', 'expires', 'httponly', 'max-age', 'path', 'samesite', 'secure']);
