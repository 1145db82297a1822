import type { CompiledPolicy } from '../../traffic-policy/engine.ts';
import type { PolicyConnect } from '../../traffic-policy/steps.ts';
import { INTERNAL_TARGET_OFFLINE } from './policy-outcome.ts';

/**
 * Runs the phase on_tcp_connect of a policy.
 *
 * @returns false when the connection is to be cut
 */
export function isLetThrough({ onTcpConnect }: CompiledPolicy, connect: PolicyConnect): boolean {
  let outcome = onTcpConnect?.(connect);
  while (outcome?.kind === 'forward' && outcome.resume) outcome = outcome.resume(INTERNAL_TARGET_OFFLINE);
  return outcome === undefined;
}
