import { type CelInput, type CelMap, celMap } from '@bufbuild/cel';
import { Budget } from '../cel/budget.ts';
import { celOf } from '../cel/values.ts';
import type {
  PolicyConnection,
  PolicyEndpoint,
  PolicyRequest,
  PolicyResponse,
  PolicyScope,
} from '../policy-subjects.ts';
import type { PolicyPorts } from '../ports.ts';
import { certificateVariables } from './certificate-variables.ts';
import { requestCookies, responseCookies } from './cookies.ts';
import { headerMap } from './header-map.ts';
import { queryParameters } from './query-parameters.ts';
import { decodedPath, pathOf, queryOf } from './url-parts.ts';
import { parseUserAgent, type UserAgent } from './user-agent.ts';
import { variablesOf } from './variables.ts';

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

export class SubjectScope implements PolicyScope {
  response: PolicyResponse | null = null;
  readonly createdAt: number;
  readonly variables: Readonly<Record<string, CelInput | undefined>>;
  readonly budget = new Budget();
  #vars = new Map<string, CelInput>();
  readonly #results: Map<string, CelInput>;
  #derived: Derived = {};
  readonly #certificates: { client?: Record<string, CelInput>; server?: Record<string, CelInput> } = {};

  constructor(
    private readonly ports: PolicyPorts,
    readonly connection: PolicyConnection,
    readonly endpoint: PolicyEndpoint,
    readonly request: PolicyRequest | null,
  ) {
    this.createdAt = ports.wallClock();
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

  get vars(): CelMap {
    return celMap(this.#vars);
  }

  get actions(): CelMap {
    return celMap(new Map([['ngrok', celMap(this.#results)]]));
  }

  get requestHeaders(): CelMap {
    this.#derived.requestHeaders ??= headerMap(this.request?.headers ?? []);
    return this.#derived.requestHeaders;
  }

  get responseHeaders(): CelMap {
    this.#derived.responseHeaders ??= headerMap(this.response?.headers ?? []);
    return this.#derived.responseHeaders;
  }

  get requestCookies(): CelMap {
    this.#derived.requestCookies ??= requestCookies(this.request?.headers ?? []);
    return this.#derived.requestCookies;
  }

  get responseCookies(): CelMap {
    this.#derived.responseCookies ??= responseCookies(this.response?.headers ?? []);
    return this.#derived.responseCookies;
  }

  get path(): string {
    this.#derived.path ??= decodedPath(pathOf(this.request?.target ?? ''));
    return this.#derived.path;
  }

  get queryParameters(): CelMap {
    this.#derived.queryParameters ??= queryParameters(queryOf(this.request?.target ?? ''));
    return this.#derived.queryParameters;
  }

  get userAgent(): UserAgent {
    const header = this.variables['req.user_agent'];
    this.#derived.userAgent ??= parseUserAgent(typeof header === 'string' ? header : '');
    return this.#derived.userAgent;
  }

  certificate(side: 'client' | 'server'): Record<string, CelInput> | undefined {
    const { tls } = this.connection;
    const der = side === 'client' ? tls?.clientCertificate : tls?.serverCertificate;
    if (!der) return undefined;
    this.#certificates[side] ??= certificateVariables(der);
    return this.#certificates[side];
  }
}
