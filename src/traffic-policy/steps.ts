import type { PolicyConnect, PolicyRequest, PolicyResponse } from './policy-subjects.ts';

/** A response that the edge sends instead of the upstream's. */
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
}

/** Close the connection without a response. */
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

/** Why a request could not be forwarded. */
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
export type ResponseStep = (request: PolicyRequest, response: PolicyResponse) => ResponseOutcome | undefined;

/**
 * An action with its configuration. For each phase that supports the action, a member makes its step; it throws
 * PolicyRefused when the phase does not support the configuration.
 */
export interface PreparedAction {
  /** Whether the action always ends its phase. */
  readonly ends: boolean;
  readonly on_tcp_connect?: () => ConnectStep;
  readonly on_http_request?: () => RequestStep;
  readonly on_http_response?: () => ResponseStep;
}
