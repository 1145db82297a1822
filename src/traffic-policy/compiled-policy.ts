import type { PolicyRequest } from './policy-subjects.ts';
import type { ConnectStep, RequestStep, ResponseStep } from './steps.ts';

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
  /** Whether it may be refused tomorrow: the IP policies that restrict-ips names can be deleted. */
  readonly mayExpire: boolean;
}

/** The policy that does nothing. */
export const NO_POLICY: CompiledPolicy = {
  onTcpConnect: null,
  onHttpRequest: null,
  onHttpResponse: null,
  onUpstreamDone: null,
  terminatesTls: false,
  mayExpire: false,
};

/**
 * A policy that is made when its first client comes: most endpoints wait for theirs while hundreds more are bound.
 *
 * @param compile known to succeed
 */
export function compiledLater(
  compile: () => CompiledPolicy,
  { terminatesTls, mayExpire }: Pick<CompiledPolicy, 'terminatesTls' | 'mayExpire'>,
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
    get onUpstreamDone() {
      return policy().onUpstreamDone;
    },
    terminatesTls,
    mayExpire,
  };
}
