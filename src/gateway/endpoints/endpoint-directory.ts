import type { EndpointProtocol, GatewayEndpoint } from './endpoint.ts';

/** Finds the internal endpoint that is online at an address; the members of a pool take turns. */
export type InternalLookup = (protocol: EndpointProtocol, host: string, port: number) => GatewayEndpoint | undefined;

/** The endpoints that are online, as the edge sees them. */
export interface EndpointDirectory {
  /**
   * The endpoint that serves a public name; the members of a pool take turns.
   *
   * @param host lower-case hostname
   */
  lookup(scheme: 'http' | 'https' | 'tls', host: string): GatewayEndpoint | undefined;
  /** The endpoint that `lookup` would return next; does not advance the pool's rotation. */
  peek(scheme: 'http' | 'https' | 'tls', host: string): GatewayEndpoint | undefined;
  readonly internal: InternalLookup;
  /** `retired`: no further connection is routed to it. `removed`: what it carries ends, too. */
  on(event: 'retired' | 'removed', listener: (endpoint: GatewayEndpoint) => void): unknown;
  off(event: 'retired' | 'removed', listener: (endpoint: GatewayEndpoint) => void): unknown;
}
