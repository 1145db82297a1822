import { runAtOnce, type Stepwise } from '../lib/stepwise.ts';
import { compilePhases } from './compile-phases.ts';
import type { CompileOptions } from './engine.ts';
import { type PolicyProblem, PolicyRefused, ProblemList } from './policy-refused.ts';
import type { EndpointProtocol } from './policy-subjects.ts';
import { standalonePorts } from './ports.ts';

export interface PolicyFinding extends PolicyProblem {
  /** A policy with an error cannot run; a warning points out a probable mistake. */
  readonly severity: 'error' | 'warning';
}

/** Checks a policy at once like {@link checkPolicyStepwise}: a large one takes a tenth of a second. */
export function checkPolicy(
  text: string,
  protocols: readonly EndpointProtocol[],
  options: CompileOptions = {},
): PolicyFinding[] {
  return runAtOnce(checkPolicyStepwise(text, protocols, options));
}

/**
 * Checks a policy without using it.
 *
 * @param text JSON or YAML, in either shape
 * @param protocols of the endpoints that will use it
 * @returns all errors, then all warnings
 */
export function* checkPolicyStepwise(
  text: string,
  protocols: readonly EndpointProtocol[],
  options: CompileOptions = {},
): Stepwise<PolicyFinding[]> {
  if (text.trim() === '') return [];
  const ports = { ...standalonePorts(), ...options.ports };
  const { internal = false, fixedTermination = false } = options;
  const errors: PolicyFinding[] = [];
  const warnings: PolicyFinding[] = [];
  for (const protocol of protocols) {
    const problems = new ProblemList();
    const warn = (place: string, message: string) => warnings.push({ severity: 'warning', code: '', place, message });
    try {
      yield* compilePhases(text, { target: { protocol, internal, fixedTermination }, ports, problems, warn });
    } catch (error) {
      if (!(error instanceof PolicyRefused)) throw error;
      problems.problems.push(...error.problems);
    }
    errors.push(...problems.problems.map((problem) => ({ severity: 'error' as const, ...problem })));
  }
  return withoutDuplicates([...errors, ...warnings]);
}

/** Most problems occur for every protocol. */
function withoutDuplicates(findings: readonly PolicyFinding[]): PolicyFinding[] {
  return [...new Map(findings.map((finding) => [JSON.stringify(finding), finding])).values()];
}
