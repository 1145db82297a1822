import { connect } from 'node:net';
import type { EndpointUpstream } from '../../src/agent/connectors/connector.ts';
import type { ConnectorKind } from '../../src/settings/agent-settings.ts';

/** Every connector; tests of what both do run with each. */
export const CONNECTORS: readonly ConnectorKind[] = ['sdk', 'native'];

/** The connector of tests that run with one: `TEST_CONNECTOR=native npx vitest run …` chooses the other. */
export const CHOSEN_CONNECTOR = (process.env.TEST_CONNECTOR ?? 'sdk') as ConnectorKind;

/** An upstream at `http://…` or `tcp://host:port`. */
export function upstreamAt(address: string): EndpointUpstream {
  const { hostname, port } = new URL(address.replace(/^tcp/, 'http'));
  const host = hostname.replace(/^\[|\]$/g, '');
  return {
    connect: async () => connect({ host, port: Number(port), allowHalfOpen: true }),
    address: async () => address,
  };
}
