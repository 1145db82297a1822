import type { CompiledPolicy } from '../../../traffic-policy/engine.ts';
import type { PolicyConnect } from '../../../traffic-policy/policy-subjects.ts';
import { RuleRecord } from '../../../traffic-policy/rule-record.ts';
import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { InternalLookup } from '../../endpoints/endpoint-directory.ts';
import type { ClientConnection } from './client-connection.ts';
import { internalTarget, TARGET_OFFLINE } from './internal-targets.ts';

/** Where the phase on_tcp_connect sends a connection. */
export type ConnectResult =
  | { readonly kind: 'upstream' }
  | { readonly kind: 'rejected' }
  | { readonly kind: 'internal'; readonly url: string; readonly target: GatewayEndpoint };

const UPSTREAM: ConnectResult = { kind: 'upstream' };
const REJECTED: ConnectResult = { kind: 'rejected' };

export function runConnectPhase(
  { onTcpConnect }: CompiledPolicy,
  connect: PolicyConnect,
  internal: InternalLookup,
): ConnectResult {
  let outcome = onTcpConnect?.(connect);
  while (outcome?.kind === 'forward') {
    const target = internalTarget(outcome.url, internal);
    if (target) return { kind: 'internal', url: outcome.url, target };
    if (outcome.resume === null) return REJECTED;
    outcome = outcome.resume(TARGET_OFFLINE);
  }
  return outcome === undefined ? UPSTREAM : REJECTED;
}

/** A record of the rules that act on a connection, for those who watch the endpoint; undefined when nobody does. */
export function recordFor(connection: ClientConnection, { feed }: GatewayEndpoint): RuleRecord | undefined {
  if (feed !== null) connection.record = new RuleRecord();
  return connection.record;
}

/** Whether the phase lets a connection pass, where forwarding is not supported. */
export function isAllowed(policy: CompiledPolicy, connect: PolicyConnect): boolean {
  return runConnectPhase(policy, connect, () => undefined).kind === 'upstream';
}
