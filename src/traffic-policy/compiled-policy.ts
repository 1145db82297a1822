import type { PolicyRequest } from './policy-subjects.ts';
import type { ConnectStep, RequestStep, ResponseStep } from './steps.ts';

/** A policy that is ready to run. A phase without rules is null, so that the edge can skip it. */
export interface CompiledPolicy {
  /** Runs once per client connection, before the TLS handshake. */
  readonly onTcpConnect: ConnectStep | null;
  /** Runs once per request, before the upstream. It may change the request or respond to it. */
  readonly onHttpRequest: RequestStep | null;
  /** Runs once per response. It may change or replace the response. */
  readonly onHttpResponse: ResponseStep | null;
  /** Whether the response phase should wait for another turn of the event loop; null when it takes next to no time. */
  readonly shouldYield: (() => boolean) | null;
  /**
   * Call it once for every request to the upstream, with the status, or null without a response. Skip requests that the
   * client cancelled.
   */
  readonly onUpstreamDone: ((request: PolicyRequest, status: number | null) => void) | null;
  /** Whether it has the action terminate-tls: the edge then terminates TLS for a tls endpoint. */
  readonly terminatesTls: boolean;
  /** Whether it can become invalid later: IP policies and certificate authorities that it names can be deleted. */
  readonly mayExpire: boolean;
  /** An estimate of the bytes that it takes. */
  readonly memory: number;
}

export const NO_POLICY: CompiledPolicy = {
  onTcpConnect: null,
  onHttpRequest: null,
  onHttpResponse: null,
  shouldYield: null,
  onUpstreamDone: null,
  terminatesTls: false,
  mayExpire: false,
  memory: 0,
};

/**
 * Defers compilation to the first client: agents bind hundreds of endpoints at once, and most wait for their first.
 *
 * @param compile must succeed
 */
export function compiledLater(
  compile: () => CompiledPolicy,
  { terminatesTls, mayExpire, memory }: Pick<CompiledPolicy, 'terminatesTls' | 'mayExpire' | 'memory'>,
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
    get shouldYield() {
      return policy().shouldYield;
    },
    get onUpstreamDone() {
      return policy().onUpstreamDone;
    },
    terminatesTls,
    mayExpire,
    memory,
  };
}
