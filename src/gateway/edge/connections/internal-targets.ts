import type { ForwardFailure, PolicyError } from '../../../traffic-policy/steps.ts';
import type { EndpointProtocol, GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { InternalLookup } from '../../endpoints/endpoint-directory.ts';

/** How often a request or connection may be forwarded: endpoints that forward to each other would loop forever. */
export const MAX_FORWARDS = 3;

export const TARGET_OFFLINE: ForwardFailure = {
  code: 'ERR_NGROK_3200',
  message: 'The internal endpoint is offline.',
};

export const TARGET_FAILED: ForwardFailure = {
  code: 'ERR_NGROK_3210',
  message: 'The internal endpoint could not be reached.',
};

export const TOO_MANY_FORWARDS: ForwardFailure = {
  code: 'ERR_NGROK_3210',
  message: `The request was forwarded more than ${MAX_FORWARDS} times.`,
};

/** The error that answers a request when forward-internal halts. */
export function forwardError(failure: ForwardFailure): PolicyError {
  return { kind: 'error', status: failure === TARGET_OFFLINE ? 404 : 502, ...failure, headers: [] };
}

const PORTS: Readonly<Record<string, number>> = { http: 80, https: 443, tls: 443 };

/**
 * Finds the endpoint that the action forward-internal names.
 *
 * @param url validated by the action: `scheme://name.internal`, perhaps with a port
 */
export function internalTarget(url: string, lookup: InternalLookup): GatewayEndpoint | undefined {
  const { protocol, hostname, port } = new URL(url.toLowerCase());
  const scheme = protocol.slice(0, -1) as EndpointProtocol;
  return lookup(scheme, hostname, Number(port) || (PORTS[scheme] ?? 0));
}
