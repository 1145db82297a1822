import type { ConnectStep, PolicyRequest, RequestStep, ResponseStep } from './steps.ts';

/**
 * A policy made ready to run. A phase is null when it has nothing to do, so that the edge can skip
 * it without a call.
 */
export interface CompiledPolicy {
  /** Once a client connection, before the TLS handshake: whether to cut it, or to send it elsewhere. */
  readonly onTcpConnect: ConnectStep | null;
  /** Once a request, before the upstream; may change it, or answer in the upstream's place. */
  readonly onHttpRequest: RequestStep | null;
  /** Once a response; may change it or replace it. */
  readonly onHttpResponse: ResponseStep | null;
  /**
   * To be called once for every request that went to the upstream, with its status, or with null when
   * there was no answer. Not for requests that the client gave up.
   */
  readonly onUpstreamDone: ((request: PolicyRequest, status: number | null) => void) | null;
  /** Whether the action terminate-tls occurs: a tls endpoint is terminated at the edge then. */
  readonly terminatesTls: boolean;
}

/** The policy that does nothing. */
export const NO_POLICY: CompiledPolicy = {
  onTcpConnect: null,
  onHttpRequest: null,
  onHttpResponse: null,
  onUpstreamDone: null,
  terminatesTls: false,
};
