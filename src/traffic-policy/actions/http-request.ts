import { randomUUID } from 'node:crypto';
import type { CelInput } from '@bufbuild/cel';
import { z } from 'zod';
import { messageOf } from '../../lib/errors.ts';
import { nameAt, valueAt } from '../../lib/http/header-fields.ts';
import { ResponseTooLong } from '../../lib/http/read-response.ts';
import { isSecretHeader } from '../../lib/masking/secret-names.ts';
import { NoRoom, Reservation } from '../../lib/memory-budget.ts';
import { ClientPlaces, NoPlaceLeft } from '../../lib/network/client-places.ts';
import { backoffDelay } from '../../lib/time/backoff.ts';
import { durationBetween, Headers } from '../action-config.ts';
import type { ActionContext } from '../action-context.ts';
import { type HeaderTemplates, headerTemplates } from '../action-parts/header-templates.ts';
import { decodedBody } from '../action-parts/message-body.ts';
import { parseConfig } from '../action-problems.ts';
import type { Declarations } from '../cel/check-expression.ts';
import { type Expression, ExpressionError } from '../cel/expression.ts';
import { celOf } from '../cel/values.ts';
import { PolicyFailure, refusal } from '../policy-errors.ts';
import type { PolicyRequest, PolicyScope } from '../policy-subjects.ts';
import { namedValues, type OutboundRequest, type OutboundResponse, Unreachable } from '../public-request.ts';
import { firstValue } from '../scope/header-map.ts';
import type { ProcessorTime } from '../state/processor-time.ts';
import { type PolicyError, type PreparedAction, policyError } from '../steps.ts';
import type { Template } from '../templates.ts';
import { NO_ERROR } from './restrict-ips.ts';

const MAX_RESPONSE = 256 * 1024;
const MAX_RETRIES = 3;
const RETRY = { baseMs: 100, maxMs: 1000 };
/** At a time, of all policies of an authtoken. */
const MAX_PARALLEL = 32;
/** Processor time of one request, in milliseconds; what a server's certificates take is measured. */
const PUBLIC_MS = 2;
const INTERNAL_MS = 0.5;

const NO_BODY = Buffer.alloc(0);

const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
const WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH', 'DELETE']);

const HttpRequestConfig = z.strictObject({
  url: z.string().min(1),
  method: z.enum(['GET', 'PUT', 'POST', 'PATCH', 'DELETE', 'OPTIONS']).optional(),
  query_params: z
    .array(z.strictObject({ key: z.string().min(1).max(128), value: z.string().max(8192) }))
    .max(32)
    .optional(),
  headers: Headers.optional(),
  body: z.string().optional(),
  max_redirects: z.int().min(0).max(5).optional(),
  timeout: durationBetween(1000, 30_000).optional(),
  retry_condition: z.string().min(1).optional(),
  on_error: z.enum(['halt', 'continue']).optional(),
});

const placesByPayer = new WeakMap<ProcessorTime, ClientPlaces>();

/** The places for requests of those who pay with this time. */
function placesOf(time: ProcessorTime): ClientPlaces {
  const places = placesByPayer.get(time) ?? new ClientPlaces(MAX_PARALLEL);
  placesByPayer.set(time, places);
  return places;
}

/** Why a request has failed, as policies read it. */
class RequestFailed extends Error {
  /** Whether it halts the policy whatever that says: clients could bring it about, to get past a policy that goes on. */
  readonly halts: boolean;

  constructor(
    readonly code: string,
    message: string,
    { halts = false, ...options }: ErrorOptions & { halts?: boolean } = {},
  ) {
    super(message, options);
    this.name = 'RequestFailed';
    this.halts = halts;
  }
}

interface Attempt {
  readonly response: OutboundResponse | null;
  readonly error: RequestFailed | null;
  readonly ms: number;
}

interface Prepared {
  readonly method: string;
  readonly url: Template;
  readonly query: readonly { key: string; value: Template }[];
  readonly headers: HeaderTemplates;
  readonly body: Template | null;
  readonly maxRedirects: number;
  readonly timeoutMs: number;
  readonly retries: Expression | null;
}

/** Makes a request of its own, and goes on with what was answered. */
export function httpRequest(config: unknown, context: ActionContext): PreparedAction {
  const { on_error: onError = 'continue', ...parsed } = parseConfig(HttpRequestConfig, config);
  const prepared = prepare(parsed, context);
  const run = async (request: PolicyRequest): Promise<PolicyError | undefined> => {
    const attempt = new HttpRequestRun(request, prepared, context);
    const error = await attempt.run();
    if (error === null || (onError === 'continue' && !error.halts)) return undefined;
    const status = error.code === TIMED_OUT ? 504 : 502;
    return policyError(status, error.code, 'A request of the endpoint failed.');
  };
  return { ends: false, on_http_request: () => run, on_http_response: () => run };
}

const FAILED = 'ERR_NGROK_2300';
const TOO_MANY_REDIRECTS = 'ERR_NGROK_3214';
const TOO_LONG = 'ERR_NGROK_3601';
const TIMED_OUT = 'ERR_NGROK_3602';
const NOT_A_URL = 'ERR_NGROK_2226';
/** One message for all of it: the operator's log says which. */
const UNREACHABLE =
  'the server is unreachable: its name does not resolve, its addresses are not public, or it accepts no connection';

function prepare(config: Omit<z.output<typeof HttpRequestConfig>, 'on_error'>, context: ActionContext): Prepared {
  const url = context.template(config.url, 'config.url');
  if (url.constant !== null) {
    const problem = urlProblem(url.constant);
    if (problem) throw refusal(NOT_A_URL, problem, 'config.url');
  }
  for (const name of Object.keys(config.headers ?? {})) {
    if (/^(?:host|content-length)$/i.test(name)) {
      throw refusal('ERR_NGROK_2219', `${name} cannot be changed`, 'config.headers');
    }
  }
  const { query_params: query = [], body, retry_condition: retries } = config;
  return {
    method: config.method ?? 'GET',
    url,
    query: query.map(({ key, value }, at) => ({
      key,
      value: context.template(value, `config.query_params[${at}].value`),
    })),
    headers: headerTemplates(config.headers ?? {}, context),
    body: body === undefined ? null : context.template(body, 'config.body'),
    maxRedirects: config.max_redirects ?? 0,
    timeoutMs: config.timeout ?? 3000,
    retries:
      retries === undefined
        ? null
        : context.expression(
            retries,
            'config.retry_condition',
            withAttempts(context.policy.declarations[context.phase]),
          ),
  };
}

function urlProblem(text: string): string | null {
  if (!URL.canParse(text)) return 'must be a URL';
  const { protocol, username, password } = new URL(text);
  if (protocol !== 'http:' && protocol !== 'https:') return 'must start with http:// or https://';
  return username === '' && password === '' ? null : 'must not have a user name or password; use headers';
}

const retryDeclarations = new WeakMap<Declarations, Declarations>();

/** The variables of a phase, and those of retry_condition. */
function withAttempts(declarations: Declarations): Declarations {
  const known = retryDeclarations.get(declarations) ?? {
    ...declarations,
    names: new Set([...declarations.names, 'attempts', 'last_attempt']),
    roots: new Set([...declarations.roots, 'attempts', 'last_attempt']),
    open: new Set([...declarations.open, 'last_attempt']),
  };
  retryDeclarations.set(declarations, known);
  return known;
}

/** One run of the action. */
class HttpRequestRun {
  readonly #attempts: Attempt[] = [];
  readonly #scope: PolicyScope;
  /** Bodies of responses, as they arrive and decoded. */
  readonly #held: Reservation;
  #outbound: OutboundRequest | null = null;

  constructor(
    private readonly request: PolicyRequest,
    private readonly prepared: Prepared,
    private readonly context: ActionContext,
  ) {
    this.#scope = context.scopeOf(request);
    this.#held = new Reservation(request.bodyMemory ?? null);
  }

  /** @returns why it has failed; null: it has not */
  async run(): Promise<RequestFailed | null> {
    const { processorTime } = this.context.ports;
    const { connection, clientLeft } = this.request;
    let error: RequestFailed | null = null;
    try {
      error = await placesOf(processorTime).run(connection.clientIp, clientLeft, (end) => this.#runUntil(end));
    } catch (problem) {
      if (problem instanceof NoPlaceLeft) error = tooMany(`more than ${MAX_PARALLEL} requests at a time`);
      // What has no value, and no error of the gateway's own, is a failure of the request.
      else if (problem instanceof RequestFailed) error = problem;
      else throw problem;
    } finally {
      this.#held.release();
    }
    // Until the response to the client ends, later rules may read it: the scope counts it.
    this.#record(error);
    if (error) this.context.trouble(error.code, `http-request failed: ${messageOf(error.cause ?? error)}`);
    return error;
  }

  async #runUntil(end: AbortController): Promise<RequestFailed | null> {
    const { timeoutMs } = this.prepared;
    const cancel = this.context.ports.clock.after(timeoutMs, () => {
      end.abort(new RequestFailed(TIMED_OUT, `no response within ${timeoutMs / 1000} s`));
    });
    try {
      this.#outbound = this.#outboundRequest();
      return await this.#tryAll(this.#outbound, end.signal);
    } finally {
      cancel();
    }
  }

  #outboundRequest(): OutboundRequest {
    const { method, url: template, query, headers, body } = this.prepared;
    const text = template.text(this.#scope);
    const problem = template.constant === null ? urlProblem(text) : null;
    if (problem) throw new RequestFailed(NOT_A_URL, `config.url ${problem}`);
    const url = new URL(text);
    url.hash = '';
    for (const { key, value } of query) url.searchParams.append(key, value.text(this.#scope));
    const sent = body === null || !WITH_BODY.has(method) ? null : Buffer.from(body.text(this.#scope));
    const names = headers.names.has('user-agent') ? [] : ['user-agent', 'device-agent-gateway'];
    const all = [
      ...headers.flat(this.#scope),
      ...names,
      'ngrok-req-type',
      'http-request',
      'ngrok-req-id',
      randomUUID(),
    ];
    return { method, url, headers: all, body: sent, maxBytes: MAX_RESPONSE, held: this.#held };
  }

  async #tryAll(outbound: OutboundRequest, signal: AbortSignal): Promise<RequestFailed | null> {
    for (;;) {
      this.#forgetLastBody();
      const attempt = await this.#attempt(outbound, signal);
      this.#attempts.push(attempt);
      const isLast = this.#attempts.length > MAX_RETRIES || signal.aborted || attempt.error?.halts === true;
      if (isLast || !this.#wantsRetry(outbound, attempt)) return attempt.error;
      const { clock } = this.context.ports;
      const delay = backoffDelay(this.#attempts.length - 1, RETRY, clock.random);
      // The time is up, or nobody waits any more.
      await clock.sleep(delay, signal).catch(() => {});
    }
  }

  /** Policies read the body of the last attempt only. */
  #forgetLastBody(): void {
    const last = this.#attempts.pop();
    if (last === undefined) return;
    const { response } = last;
    this.#attempts.push({ ...last, response: response && { ...response, body: NO_BODY } });
    this.#held.release();
  }

  async #attempt(outbound: OutboundRequest, signal: AbortSignal): Promise<Attempt> {
    const start = performance.now();
    let response: OutboundResponse | null = null;
    let error: RequestFailed | null = null;
    try {
      response = await this.#followed(outbound, signal);
    } catch (problem) {
      error = failureOf(signal.aborted ? signal.reason : problem);
    }
    return { response, error, ms: performance.now() - start };
  }

  async #followed(first: OutboundRequest, signal: AbortSignal): Promise<OutboundResponse> {
    const { maxRedirects } = this.prepared;
    let outbound = first;
    for (let redirects = 0; ; redirects++) {
      const response = await this.#ask(outbound, signal);
      const location = firstValue(response.headers, 'location');
      if (maxRedirects === 0 || !REDIRECTS.has(response.status) || location === undefined) {
        const time = this.context.timeFor(this.request);
        const body = await decodedBody(response.body, response.headers, MAX_RESPONSE, this.#held, time);
        return { ...response, body };
      }
      if (redirects === maxRedirects) {
        throw new RequestFailed(TOO_MANY_REDIRECTS, `the server redirected more than ${maxRedirects} times`);
      }
      outbound = redirected(outbound, response.status, location);
      this.#held.release();
    }
  }

  async #ask(outbound: OutboundRequest, signal: AbortSignal): Promise<OutboundResponse> {
    const { calls } = this.request;
    if (calls) calls.left -= 1;
    const response = calls && calls.left < 0 ? null : await this.#send(outbound, signal);
    // The policy of an internal endpoint may have had too many, too.
    if (response !== null && (!calls || calls.left >= 0)) return response;
    throw tooMany('policies have made too many requests for one request of a client');
  }

  #send(outbound: OutboundRequest, signal: AbortSignal): Promise<OutboundResponse> {
    const { ports } = this.context;
    const { calls, connection } = this.request;
    const time = this.context.timeFor(this.request);
    if (isInternal(outbound.url)) {
      if (!calls) throw new RequestFailed(FAILED, 'there are no internal endpoints');
      time.spend(INTERNAL_MS);
      return calls.ask(outbound, signal);
    }
    time.spend(PUBLIC_MS);
    const headers = [...outbound.headers, 'x-forwarded-for', connection.clientIp];
    return ports.request({ ...outbound, headers }, signal, time);
  }

  #wantsRetry(outbound: OutboundRequest, { response, error }: Attempt): boolean {
    const { retries } = this.prepared;
    if (retries === null) return false;
    const res = response && { ...shownResponse(response), statusCode: response.status };
    const last = { req: shownRequest(outbound), ...(res && { res }), error: error?.message ?? '' };
    const scope = this.#scope;
    const variables: Record<string, CelInput | undefined> = Object.create(scope.variables, {
      attempts: { value: BigInt(this.#attempts.length) },
      last_attempt: { value: celOf(last) },
    });
    const { budget } = scope;
    try {
      const found = { variables, budget, random: () => scope.random(), secret: scope.secret.bind(scope) };
      return retries.evaluate(found) === true;
    } catch (problem) {
      // For example because there is no response, like a rule that does not match then.
      if (problem instanceof ExpressionError) return false;
      throw problem;
    } finally {
      // What was parsed of the request must not wait with it.
      scope.changed();
    }
  }

  #record(error: RequestFailed | null): void {
    const last = this.#attempts.at(-1);
    this.context.record(this.request, 'http_request', {
      attempts: this.#attempts.map(({ response, ms }) => ({
        resolved_ip: response?.address ?? '',
        response_header: namedValues(response?.headers ?? []),
        response_status_code: response?.status ?? 0,
        response_time_ms: String(Math.round(ms)),
      })),
      ...(this.#outbound && { req: shownRequest(this.#outbound) }),
      ...(last?.response && { res: { ...shownResponse(last.response), time_ms: String(Math.round(last.ms)) } }),
      error: error === null ? NO_ERROR : { code: error.code, message: error.message },
    });
  }
}

function failureOf(problem: unknown): RequestFailed {
  if (problem instanceof RequestFailed) return problem;
  if (problem instanceof NoRoom) return tooMany('what requests of policies were answered takes too much memory');
  if (problem instanceof PolicyFailure) return new RequestFailed(problem.code, problem.message);
  if (problem instanceof Unreachable) return new RequestFailed(FAILED, UNREACHABLE, { cause: problem });
  const code = problem instanceof ResponseTooLong ? TOO_LONG : FAILED;
  return new RequestFailed(code, messageOf(problem), { cause: problem });
}

function tooMany(problem: string): RequestFailed {
  return new RequestFailed(FAILED, problem, { halts: true });
}

function shownRequest({ method, url, headers, body }: OutboundRequest): object {
  return { method, header: namedValues(headers), url: url.href, body: body?.toString() ?? '' };
}

function shownResponse({ status, headers, body, address }: OutboundResponse): object {
  return { resolved_ip: address, header: namedValues(headers), status_code: status, body: body.toString() };
}

function isInternal({ hostname }: URL): boolean {
  return hostname.endsWith('.internal');
}

/** The request that follows a redirect (RFC 9110, 15.4). */
function redirected(outbound: OutboundRequest, status: number, location: string): OutboundRequest {
  if (!URL.canParse(location, outbound.url.href)) throw new RequestFailed(NOT_A_URL, 'the redirect has no valid URL');
  const url = new URL(location, outbound.url.href);
  const problem = urlProblem(url.href);
  if (problem) throw new RequestFailed(NOT_A_URL, `the URL of the redirect ${problem}`);
  if (isInternal(url) && !isInternal(outbound.url)) {
    throw new RequestFailed(FAILED, 'a server of the public internet redirected to an internal endpoint');
  }
  const becomesGet = status === 303 || (status < 303 && outbound.method === 'POST');
  const isElsewhere = url.origin !== outbound.url.origin;
  const headers: string[] = [];
  for (let at = 0; at < outbound.headers.length; at += 2) {
    const name = nameAt(outbound.headers, at);
    // Credentials are for the first server only, and these describe the body.
    if (isElsewhere && isSecretHeader(name)) continue;
    if (becomesGet && /^content-/i.test(name)) continue;
    headers.push(name, valueAt(outbound.headers, at));
  }
  return becomesGet ? { ...outbound, method: 'GET', url, headers, body: null } : { ...outbound, url, headers };
}
