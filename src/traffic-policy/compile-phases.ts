import { messageOf } from '../lib/errors.ts';
import { Repeats } from '../lib/log/repeats.ts';
import type { Stepwise } from '../lib/stepwise.ts';
import { accessOf, admissionOf } from './access.ts';
import { type PolicyContext, type ReportTrouble, scopeOf, timeFor } from './action-context.ts';
import { forgetBytes } from './action-parts/message-body.ts';
import { traitsOf } from './action-types.ts';
import { CLOSE } from './actions/deny.ts';
import { Budget } from './cel/budget.ts';
import { compileRules, framed, type PhaseCompiler, type PolicyFrame } from './compile-rules.ts';
import { PHASES, type Phase, PolicyNotApplicable, type RulesByPhase, toTrafficPolicy } from './document.ts';
import { ClientLeft, PolicyFailure, type ProblemList, refusal } from './policy-errors.ts';
import type {
  EndpointProtocol,
  EventStreamMessage,
  PolicyConnect,
  PolicyRequest,
  PolicyResponse,
  Subject,
} from './policy-subjects.ts';
import { parsePolicyText, type RawPolicy, type RawRule } from './policy-text.ts';
import type { PolicyPorts } from './ports.ts';
import { firstValue, parseMediaType } from './scope/header-map.ts';
import { declarationsOf } from './scope/policy-variables.ts';
import type { ProcessorTime } from './state/processor-time.ts';
import {
  CONNECT,
  type CompiledPolicy,
  type ConnectOutcome,
  type ConnectStep,
  MESSAGE,
  type MessageResult,
  type PolicyError,
  policyError,
  REQUEST,
  RESPONSE,
  type RequestResult,
  type RequestStep,
  type ResponseResult,
  type ResponseStep,
  sequence,
} from './steps.ts';

/** Measured: what a rule without expressions takes for each character of its text. */
const BYTES_PER_CHARACTER = 16;

export interface Compilation {
  readonly target: {
    readonly protocol: EndpointProtocol;
    readonly internal: boolean;
    readonly fixedTermination: boolean;
  };
  readonly frame?: PolicyFrame | undefined;
  readonly ports: PolicyPorts;
  readonly problems: ProblemList;
  warn(place: string, message: string): void;
}

/**
 * Collects the problems of the rules in `problems`.
 *
 * @throws {PolicyRefused} when the document as a whole is invalid
 */
export function* compilePhases(
  text: string,
  { target, frame, ports, problems, warn }: Compilation,
): Stepwise<CompiledPolicy> {
  const document = parsePolicyText(text);
  const own = rulesFor(document, target);
  const rules = framed(own, frame);
  const actions = actionsOf(rules);
  checkTogether(actions, problems);
  if (frame) checkReached(own, frame, problems);
  const types = new Set(actions.map(({ type }) => type));
  const policy: PolicyContext = {
    ports,
    declarations: declarationsOf({ ...target, terminatesTls: types.has('terminate-tls') }),
    protocol: target.protocol,
    fixedTermination: target.fixedTermination,
    results: new Set(),
    reportTrouble: troubleReporter(ports),
    patterns: new Budget(),
    memory: actions.length === 0 ? 0 : text.length * BYTES_PER_CHARACTER,
    dynamicPhases: new Set(),
    vars: {
      on_tcp_connect: new Set(),
      on_http_request: new Set(),
      on_http_response: new Set(),
      on_event_stream_message: new Set(),
    },
    warn,
  };
  const [connecting, requests, responses, messages] = phaseCompilers(policy);
  const connect = yield* compilePhase(rules, connecting, policy, problems);
  const request = yield* compilePhase(rules, requests, policy, problems);
  const response = yield* compilePhase(rules, responses, policy, problems);
  const message = yield* compilePhase(rules, messages, policy, problems);
  const onTcpConnect: ConnectStep | null = connect && ((subject) => connect(subject, undefined));
  const onHttpRequest: RequestStep | null = request && ((subject) => request(subject, undefined));
  const onHttpResponse = message === null ? response : withMessages(response, policy);
  const metering = { ports, reportTrouble: policy.reportTrouble };
  const isMetered = (phase: Phase) => policy.dynamicPhases.has(phase) || !isInstant(rules[phase] ?? []);
  const metersRequests = isMetered('on_http_request') || isMetered('on_http_response');
  const isMeteredResponse = onHttpResponse !== null && isMetered('on_http_response');
  return {
    onTcpConnect:
      onTcpConnect && isMetered('on_tcp_connect') ? meteredConnections(onTcpConnect, metering) : onTcpConnect,
    onHttpRequest: metersRequests ? meteredRequests(onHttpRequest, metering) : onHttpRequest,
    onHttpResponse: isMeteredResponse
      ? (subject, answer) => timeFor(subject, ports).run(() => onHttpResponse(subject, answer))
      : onHttpResponse,
    onEventStreamMessage:
      message && ((subject, each) => timeFor(subject, ports).runWhenLeft(() => message(subject, each))),
    shouldYield: isMeteredResponse ? () => ports.processorTime.shouldYield : null,
    onUpstreamDone: types.has('circuit-breaker') ? notifyWatchers : null,
    terminatesTls: types.has('terminate-tls'),
    access: accessOf(rules),
    admission: problems.problems.length === 0 ? admissionOf(rules) : null,
    warnings: [],
    mayExpire: types.has('restrict-ips') || types.has('terminate-tls') || types.has('gateway-status-page'),
    memory: policy.memory,
  };
}

function isInstant(rules: readonly RawRule[]): boolean {
  return rules.every(({ actions }) => actions.every(({ type }) => traitsOf(type)?.instant === true));
}

function phaseCompilers(
  policy: PolicyContext,
): [
  PhaseCompiler<PolicyConnect, undefined, ConnectOutcome>,
  PhaseCompiler<PolicyRequest, undefined, RequestResult>,
  PhaseCompiler<PolicyRequest, PolicyResponse, ResponseResult>,
  PhaseCompiler<PolicyRequest, EventStreamMessage, MessageResult>,
] {
  const fail = (place: string, error: unknown) => failure(place, error, policy);
  const close = (place: string, error: unknown) => {
    fail(place, error);
    return CLOSE;
  };
  return [
    { phase: 'on_tcp_connect', kind: CONNECT, maker: (action) => action.on_tcp_connect, fail: close },
    {
      phase: 'on_http_request',
      kind: REQUEST,
      maker: (action) => action.on_http_request,
      excluded: (action) => action.on_excluded_request,
      fail,
    },
    { phase: 'on_http_response', kind: RESPONSE, maker: (action) => action.on_http_response, fail },
    { phase: 'on_event_stream_message', kind: MESSAGE, maker: (action) => action.on_event_stream_message, fail },
  ];
}

interface PlacedAction {
  type: string;
  place: string;
}

function actionsOf(rules: RulesByPhase<RawRule>): PlacedAction[] {
  return PHASES.flatMap((phase) => rules[phase] ?? []).flatMap(({ place, actions }) =>
    actions.map(({ type }, at) => ({ type, place: `${place}.actions[${at}]` })),
  );
}

function notifyWatchers(request: PolicyRequest, status: number | null): void {
  for (const watcher of request.watchers ?? []) watcher(status);
  delete request.watchers;
}

function rulesFor(policy: RawPolicy, { protocol, internal }: Compilation['target']): RulesByPhase<RawRule> {
  const http = protocol === 'http' || protocol === 'https';
  try {
    const rules = toTrafficPolicy(policy, http ? 'http' : protocol);
    if (internal && http && rules.on_tcp_connect?.length) {
      throw refusal(
        'ERR_NGROK_2262',
        'is not supported: an internal endpoint has no connections of its own',
        'on_tcp_connect',
      );
    }
    return rules;
  } catch (error) {
    if (!(error instanceof PolicyNotApplicable)) throw error;
    const [place = '', problem = ''] = Object.entries(error.details)[0] ?? [];
    throw refusal(place.includes('.actions') ? 'ERR_NGROK_2205' : 'ERR_NGROK_2230', problem, place);
  }
}

/** Each may keep a counter in memory for every client. */
const MAX_RATE_LIMITS = 20;

function checkTogether(actions: readonly PlacedAction[], { problems }: ProblemList): void {
  const second = actions.filter(({ type }) => traitsOf(type)?.authenticates)[1];
  if (second) {
    const message = 'is a second authentication action; an endpoint supports one';
    problems.push({ code: 'ERR_NGROK_2239', place: second.place, message });
  }
  const beyond = actions.filter(({ type }) => type === 'rate-limit')[MAX_RATE_LIMITS];
  if (beyond) {
    problems.push({
      code: 'ERR_NGROK_2265',
      place: beyond.place,
      message: `exceeds the maximum of ${MAX_RATE_LIMITS} rate limits`,
    });
  }
}

/** Rules of the frame for requests would never run when on_tcp_connect forwards whole connections. */
function checkReached(own: RulesByPhase<RawRule>, frame: PolicyFrame, { problems }: ProblemList): void {
  const forwards = own.on_tcp_connect?.some(({ actions }) => actions.some(({ type }) => type === 'forward-internal'));
  if (!forwards) return;
  const { before, after } = frame;
  for (const phase of ['on_http_request', 'on_http_response'] as const) {
    for (const { place } of [...(before[phase] ?? []), ...(after[phase] ?? [])]) {
      const message = 'has no effect when on_tcp_connect forwards connections: forward in on_http_request';
      problems.push({ code: 'ERR_NGROK_2204', place, message });
    }
  }
}

function* compilePhase<S extends Subject, Response extends PolicyResponse | EventStreamMessage | undefined, Result>(
  rules: RulesByPhase<RawRule>,
  compiler: PhaseCompiler<S, Response, Result>,
  policy: PolicyContext,
  problems: ProblemList,
): Stepwise<((subject: S, response: Response) => Result | undefined) | null> {
  const { phase, kind, fail } = compiler;
  const steps = yield* compileRules(rules[phase] ?? [], compiler, policy, problems);
  if (steps.length === 0) return null;
  const runSteps = sequence(steps, kind, fail, (subject, work) => timeFor(subject, policy.ports).run(work));
  const run = (subject: S, response: Response) => {
    const result = runSteps(subject, response);
    const { record } = subject;
    if (record === undefined || result === undefined) return result;
    return kind.observe(result, (outcome) => record.ended(phase, outcome));
  };
  if (!policy.dynamicPhases.has(phase)) return run;
  return (subject, response) => {
    const scope = scopeOf(subject, policy.ports);
    scope.begin(responseIn(response));
    const end = <T>(outcome: T): T => {
      scope.end(!goesOn(outcome));
      return outcome;
    };
    const result = run(subject, response);
    if (!(result instanceof Promise)) return end(result);
    const failed = (error: unknown): never => {
      scope.end(true);
      throw error;
    };
    return result.then(end, failed) as Result;
  };
}

/** Whether the phase runs on when its outcome fails. */
function goesOn(outcome: unknown): boolean {
  return typeof outcome === 'object' && outcome !== null && 'resume' in outcome && outcome.resume !== null;
}

/** Prepares event streams for rules that read their messages, after the response phase. */
function withMessages(run: ResponseStep | null, policy: PolicyContext): ResponseStep {
  const phase = 'on_event_stream_message';
  const prepare = (response: PolicyResponse) => {
    const { type } = parseMediaType(firstValue(response.headers, 'content-type') ?? '');
    if (type !== 'text/event-stream' || response.readBody === undefined) return undefined;
    response.hasMessages = true;
    // With compress-response, the encoding is yet to come.
    if (response.compression !== undefined) return undefined;
    if (!/^(?:identity)?$/i.test(firstValue(response.headers, 'content-encoding') ?? '')) {
      const problem = 'the event stream is compressed; remove the header accept-encoding in on_http_request';
      return failure(phase, new PolicyFailure('ERR_NGROK_2300', problem), policy);
    }
    forgetBytes(response.headers);
    return undefined;
  };
  return (request, response) => {
    const result = run?.(request, response);
    if (result instanceof Promise) return result.then((outcome) => outcome ?? prepare(response));
    return result ?? prepare(response);
  };
}

function responseIn(seen: PolicyResponse | EventStreamMessage | undefined): PolicyResponse | null {
  if (seen === undefined) return null;
  return 'response' in seen ? seen.response : seen;
}

function troubleReporter({ clock, onTrouble }: PolicyPorts): ReportTrouble {
  const repeats = new Repeats(() => clock.now());
  return (place, code, message, cause) => {
    const times = repeats.timesDue(place);
    if (times !== null) onTrouble({ place, code, message, times, cause });
  };
}

/** Logs a failure; the client learns only its code. */
function failure(place: string, error: unknown, { reportTrouble }: PolicyContext): PolicyError {
  const code = error instanceof PolicyFailure ? error.code : 'ERR_NGROK_2300';
  if (!(error instanceof ClientLeft)) reportTrouble(place, code, messageOf(error), error);
  return policyError(500, code, "The endpoint's traffic policy failed on this request.");
}

/** In ngrok's catalogue: the account is limited to an amount of a resource per interval. */
const CODE = 'ERR_NGROK_5001';

interface Metering {
  readonly ports: PolicyPorts;
  readonly reportTrouble: ReportTrouble;
}

/**
 * Rejects requests while their clients' network has no processor time left, and makes them wait for a turn of the event loop after
 * its policies ran long in this one. Null when only other phases take time.
 */
function meteredRequests(run: RequestStep | null, { ports, reportTrouble }: Metering): RequestStep {
  const step: RequestStep = (request) => {
    const time = timeFor(request, ports);
    if (time.isSpent) return busy('on_http_request', time, reportTrouble);
    if (run === null) return undefined;
    if (time.shouldYield) return new Promise(setImmediate).then(() => step(request));
    return time.run(() => run(request));
  };
  return step;
}

function meteredConnections(run: ConnectStep, { ports, reportTrouble }: Metering): ConnectStep {
  return (connect) => {
    const time = timeFor(connect, ports);
    if (!time.isSpent) return time.run(() => run(connect));
    busy('on_tcp_connect', time, reportTrouble);
    return CLOSE;
  };
}

function busy(place: string, time: ProcessorTime, reportTrouble: ReportTrouble): PolicyError {
  reportTrouble(place, CODE, "the authtoken's policies have used up their processor time");
  const message = 'The traffic policies of this account have used up their processor time. Try again later.';
  return policyError(503, CODE, message, ['retry-after', String(Math.ceil(time.waitMs / 1000))]);
}
