import type { NoticeLink } from '../lib/http/notice-page.ts';
import type { AccessWay, AdmittedPeople } from './access.ts';
import type {
  EventStreamMessage,
  NotAdmitted,
  PolicyConnect,
  PolicyRequest,
  PolicyResponse,
  Subject,
} from './policy-subjects.ts';
import type { RecordedRule } from './rule-record.ts';

/** A policy that is ready to run. A phase without rules is null, so that the edge can skip it. */
export interface CompiledPolicy {
  /** Runs once per client connection, before the TLS handshake. */
  readonly onTcpConnect: ConnectStep | null;
  /** Runs once per request, before the upstream. It may change the request or respond to it. */
  readonly onHttpRequest: RequestStep | null;
  readonly onHttpResponse: ResponseStep | null;
  /** Runs for every message of an event stream, which it may change. */
  readonly onEventStreamMessage: MessageStep | null;
  /** Whether the response phase should wait for another turn of the event loop; null when it takes next to no time. */
  readonly shouldYield: (() => boolean) | null;
  /**
   * Call it once for every request to the upstream, with the status, or null without a response. Skip requests that the
   * client cancelled.
   */
  readonly onUpstreamDone: ((request: PolicyRequest, status: number | null) => void) | null;
  /** Whether it has the action terminate-tls: the edge then terminates TLS for a tls endpoint. */
  readonly terminatesTls: boolean;
  /** How it lets clients in. */
  readonly access: readonly AccessWay[];
  /** Which people of the gateway it lets sign in; null: it asks for none. */
  readonly admission: AdmittedPeople | null;
  /** What is valid in it but probably a mistake, with its places. */
  readonly warnings: readonly string[];
  /** Whether it may be invalid later, or for others: IP policies and certificate authorities that it names can be deleted. */
  readonly mayExpire: boolean;
  readonly memory: number;
}

export const NO_POLICY: CompiledPolicy = {
  onTcpConnect: null,
  onHttpRequest: null,
  onHttpResponse: null,
  onEventStreamMessage: null,
  shouldYield: null,
  onUpstreamDone: null,
  terminatesTls: false,
  access: ['everyone'],
  admission: null,
  warnings: [],
  mayExpire: false,
  memory: 0,
};

/** Defers compilation, which must succeed, to the first client: agents bind hundreds of endpoints at once. */
export function compiledLater(
  compile: () => CompiledPolicy,
  {
    terminatesTls,
    access,
    admission,
    warnings,
    mayExpire,
    memory,
  }: Pick<CompiledPolicy, 'terminatesTls' | 'access' | 'admission' | 'warnings' | 'mayExpire' | 'memory'>,
): CompiledPolicy {
  let made: CompiledPolicy | null = null;
  const policy = () => {
    made ??= compile();
    return made;
  };
  return {
    get onTcpConnect() {
      return policy().onTcpConnect;
    },
    get onHttpRequest() {
      return policy().onHttpRequest;
    },
    get onHttpResponse() {
      return policy().onHttpResponse;
    },
    get onEventStreamMessage() {
      return policy().onEventStreamMessage;
    },
    get shouldYield() {
      return policy().shouldYield;
    },
    get onUpstreamDone() {
      return policy().onUpstreamDone;
    },
    terminatesTls,
    access,
    admission,
    warnings,
    mayExpire,
    memory,
  };
}

export interface PolicyAnswer {
  readonly kind: 'answer';
  readonly status: number;
  /** Alternating names and values, shared by all requests. */
  readonly headers: readonly string[];
  readonly body: Buffer;
  /** Whether the action rejects the request: the phase on_http_response then does not run. */
  readonly refused: boolean;
}

/** A rejection that the edge answers with its error page, without the phase on_http_response. */
export interface PolicyError {
  readonly kind: 'error';
  readonly status: number;
  /** For the header `ngrok-error-code`. */
  readonly code: string;
  /** One sentence for the client; it reveals nothing of the policy. */
  readonly message: string;
  /** Alternating names and values, added to the headers of the page. */
  readonly headers: readonly string[];
  /** Where the page leads next. */
  readonly link?: NoticeLink;
}

export function policyError(
  status: number,
  code: string,
  message: string,
  headers: PolicyError['headers'] = [],
): PolicyError {
  return { kind: 'error', status, code, message, headers };
}

/** The page for somebody who has signed in, and may not come in. */
export function notAdmittedError({ message, link }: NotAdmitted): PolicyError {
  return { ...policyError(403, 'ERR_GATEWAY_NOT_ADMITTED', message, ['cache-control', 'no-store']), link };
}

export interface PolicyClose {
  readonly kind: 'close';
}

/** Send the traffic to an internal endpoint, whose own policy runs as well, instead of the upstream. */
export interface PolicyForward<Result> {
  readonly kind: 'forward';
  /** `scheme://name.internal[:port]`. */
  readonly url: string;
  /**
   * Runs the rest of the phase when forwarding fails; the edge carries out its outcome. Null when the client gets the
   * failure.
   */
  readonly resume: ((failure: ForwardFailure) => Result) | null;
}

export interface ForwardFailure {
  /** `ERR_NGROK_3200` for a target that is offline, `ERR_NGROK_3210` for one that failed. */
  readonly code: string;
  readonly message: string;
}

export type ConnectOutcome = PolicyClose | PolicyForward<ConnectOutcome | undefined>;
export type RequestOutcome =
  | PolicyAnswer
  | PolicyError
  | PolicyClose
  | PolicyForward<MaybePromise<RequestOutcome | undefined>>;
export type ResponseOutcome = PolicyAnswer | PolicyError;

export type MaybePromise<T> = T | Promise<T>;

/** A prepared action in one phase. An outcome ends the phase; undefined continues with the next step. */
export type ConnectStep = (connect: PolicyConnect) => ConnectOutcome | undefined;
export type RequestStep = (request: PolicyRequest) => MaybePromise<RequestOutcome | undefined>;
export type ResponseStep = (
  request: PolicyRequest,
  response: PolicyResponse,
) => MaybePromise<ResponseOutcome | undefined>;
/** An outcome ends the stream. */
export type MessageStep = (
  request: PolicyRequest,
  message: EventStreamMessage,
) => MaybePromise<PolicyError | undefined>;

/**
 * An action with its configuration. For each phase that supports the action, a member makes its step; it throws
 * PolicyRefused when the phase does not support the configuration.
 */
export interface PreparedAction {
  /** Whether the action always ends its phase. */
  readonly ends: boolean;
  readonly on_tcp_connect?: () => ConnectStep;
  readonly on_http_request?: () => RequestStep;
  /** Runs instead when the expressions of the rule exclude a request, for paths that the action answers itself. */
  readonly on_excluded_request?: RequestStep;
  readonly on_http_response?: () => ResponseStep;
  readonly on_event_stream_message?: () => MessageStep;
}

export interface PlacedStep<S extends Subject, Response, Result> {
  readonly place: string;
  /** The action that the step runs; null for a rule with expressions, whose steps are within. */
  readonly action: { readonly rule: RecordedRule; readonly type: string } | null;
  readonly run: (subject: S, response: Response) => Result | undefined;
  /** Runs instead when the expressions of the rule exclude the subject. */
  readonly excluded?: ((subject: S, response: Response) => Result | undefined) | undefined;
}

export interface OutcomeKind<Result> {
  /**
   * @param rest runs the steps after it
   * @param fail makes an outcome of an error
   */
  settle(result: Result, rest: () => Result | undefined, fail: (error: unknown) => Result): Result | undefined;
  /** Tells the outcomes of a phase, and those after a failed forward; returns the result to go on with. */
  observe(result: Result, onOutcome: (outcome: Outcome) => void): Result;
}

type Outcome = ConnectOutcome | RequestOutcome | ResponseOutcome;

/**
 * @param fail makes an outcome of a thrown error
 * @param around runs the steps for a subject after one that had to wait
 */
export function sequence<S extends Subject, Response, Result>(
  steps: readonly PlacedStep<S, Response, Result>[],
  kind: OutcomeKind<Result>,
  fail: (place: string, error: unknown) => Result,
  around: <T>(subject: Subject, work: () => T) => T,
): (subject: S, response: Response) => Result | undefined {
  const runFrom = (from: number, subject: S, response: Response): Result | undefined => {
    for (let at = from; at < steps.length; at++) {
      const step = steps[at] as PlacedStep<S, Response, Result>;
      if (subject.record !== undefined && step.action !== null) subject.record.runs(step.action.rule, step.action.type);
      let result: Result | undefined;
      try {
        result = step.run(subject, response);
      } catch (error) {
        return fail(step.place, error);
      }
      if (result === undefined) continue;
      if (step.action !== null) subject.endedBy = step.action.type;
      // Requests that wait must not keep what was parsed of them.
      subject.scope?.changed();
      return kind.settle(
        result,
        () => around(subject, () => runFrom(at + 1, subject, response)),
        (error) => fail(step.place, error),
      );
    }
    return undefined;
  };
  return (subject, response) => runFrom(0, subject, response);
}

export const CONNECT: OutcomeKind<ConnectOutcome> = {
  settle: (outcome, rest) =>
    outcome.kind === 'forward' ? continued(outcome, (resumed) => resumed ?? rest()) : outcome,
  observe: (outcome, onOutcome) => {
    onOutcome(outcome);
    if (outcome.kind !== 'forward') return outcome;
    return continued(outcome, (resumed) => resumed && CONNECT.observe(resumed, onOutcome));
  },
};

export type ResponseResult = MaybePromise<ResponseOutcome | undefined>;

export const RESPONSE: OutcomeKind<ResponseResult> = {
  settle: (result, rest, fail) =>
    result instanceof Promise ? result.then((outcome) => outcome ?? rest(), fail) : (result ?? rest()),
  observe(result, onOutcome) {
    const observeOne = (outcome: ResponseOutcome | undefined): ResponseOutcome | undefined => {
      if (outcome !== undefined) onOutcome(outcome);
      return outcome;
    };
    return result instanceof Promise ? result.then(observeOne) : observeOne(result);
  },
};

export type MessageResult = MaybePromise<PolicyError | undefined>;

/** Nobody is told of its outcomes: the response has been answered by then. */
export const MESSAGE: OutcomeKind<MessageResult> = {
  settle: (result, rest, fail) =>
    result instanceof Promise ? result.then((outcome) => outcome ?? rest(), fail) : (result ?? rest()),
  observe: (result) => result,
};

export type RequestResult = MaybePromise<RequestOutcome | undefined>;

export const REQUEST: OutcomeKind<RequestResult> = {
  settle(result, rest, fail) {
    const settleOne = (outcome: RequestOutcome | undefined): RequestResult => {
      if (outcome === undefined) return rest();
      return outcome.kind === 'forward' ? continued(outcome, (resumed) => settleAgain(resumed)) : outcome;
    };
    const settleAgain = (resumed: RequestResult): RequestResult =>
      resumed instanceof Promise ? resumed.then(settleOne, fail) : settleOne(resumed);
    return settleAgain(result);
  },
  observe(result, onOutcome) {
    const observeOne = (outcome: RequestOutcome | undefined): RequestOutcome | undefined => {
      if (outcome === undefined) return undefined;
      onOutcome(outcome);
      return outcome.kind === 'forward'
        ? continued(outcome, (resumed) => REQUEST.observe(resumed, onOutcome))
        : outcome;
    };
    return result instanceof Promise ? result.then(observeOne) : observeOne(result);
  },
};

function continued<Result>(outcome: PolicyForward<Result>, goOn: (resumed: Result) => Result): PolicyForward<Result> {
  const { resume } = outcome;
  return resume ? { ...outcome, resume: (failure) => goOn(resume(failure)) } : outcome;
}
