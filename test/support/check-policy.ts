import { runAtOnce } from '../../src/lib/stepwise.ts';
import { type CompileOptions, checkPolicyStepwise, type PolicyFinding } from '../../src/traffic-policy/engine.ts';
import type { EndpointProtocol } from '../../src/traffic-policy/policy-subjects.ts';

/** Checks a policy at once. */
export function checkPolicy(
  text: string,
  protocols: readonly EndpointProtocol[],
  options: CompileOptions = {},
): PolicyFinding[] {
  return runAtOnce(checkPolicyStepwise(text, protocols, options));
}
