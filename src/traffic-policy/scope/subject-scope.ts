import { type CelInput, type CelMap, celMap } from '@bufbuild/cel';
import { Budget } from '../cel/budget.ts';
import { celOf } from '../cel/values.ts';
import type {
  PolicyConnection,
  PolicyEndpoint,
  PolicyRequest,
  PolicyResponse,
  PolicyScope,
  PolicyTls,
} from '../policy-subjects.ts';
import type { PolicyPorts } from '../ports.ts';
import { addressVariables, UNKNOWN_ADDRESS } from './address-variables.ts';
import { certificateVariables } from './certificate-variables.ts';
import { requestCookies, responseCookies } from './cookies.ts';
import { headerMap } from './header-map.ts';
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

type Certificate = Record<string, CelInput> | null;

/** Parsed once per connection: it takes about a millisecond. Null for a side that presented none. */
const certificates = new WeakMap<PolicyTls, { client?: Certificate; server?: Certificate }>();

export class SubjectScope implements PolicyScope {
  response: PolicyResponse | null = null;
  readonly createdAt: number;
  readonly variables: Readonly<Record<string, CelInput | undefined>>;
  readonly budget: Budget;
  #vars = new Map<string, CelInput>();
  readonly #results: Map<string, CelInput>;
  #derived: Derived = {};
  readonly #addresses: { client?: Readonly<Record<string, CelInput>>; server?: Readonly<Record<string, CelInput>> } =
    {};

  constructor(
    private readonly ports: PolicyPorts,
    readonly connection: PolicyConnection,
    readonly endpoint: PolicyEndpoint,
    readonly request: PolicyRequest | null,
  ) {
    this.createdAt = ports.wallClock();
    this.budget = new Budget(ports.clock);
    this.#results = new Map(connection.results);
    // Every request on the connection reads the results of the connection's own phase.
    if (request === null) connection.results = this.#results;
    this.variables = variablesOf(this);
  }

  begin(response: PolicyResponse | null): void {
    this.response = response;
    this.#vars = new Map();
    this.#derived = {};
    this.budget.renew();
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
    this.#vars.set(name, value);
  }

  setResult(action: string, result: object): void {
    this.#results.set(action, celOf(result));
  }

  result(action: string): CelInput | undefined {
    return this.#results.get(action);
  }

  get vars(): CelMap {
    return celMap(this.#vars);
  }

  get actions(): CelMap {
    return celMap(new Map([['ngrok', celMap(this.#results)]]));
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
