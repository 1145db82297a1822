import { runAtOnce, type Stepwise } from '../lib/stepwise.ts';
import { compilePhases } from './compile-phases.ts';
import { isEmptyFrame, type PolicyFrame } from './compile-rules.ts';
import { type PolicyProblem, PolicyRefused, ProblemList } from './policy-errors.ts';
import type { EndpointProtocol } from './policy-subjects.ts';
import { type PolicyPorts, standalonePorts } from './ports.ts';
import { loadCertificateLibrary } from './scope/certificate-variables.ts';
import { type CompiledPolicy, NO_POLICY } from './steps.ts';

export { PolicyRefused } from './policy-errors.ts';
export { type CompiledPolicy, NO_POLICY } from './steps.ts';

/** That a policy keeps. */
const MAX_WARNINGS = 10;

export interface CompileOptions {
  /** Access to the outside; missing ports do nothing. */
  readonly ports?: Partial<PolicyPorts>;
  readonly internal?: boolean;
  /** Whether something else sets how TLS is terminated: terminate-tls then accepts only the defaults. */
  readonly fixedTermination?: boolean;
  readonly frame?: PolicyFrame;
}

/** Loads the libraries that only some policies need. Wait for it before running a policy from {@link compilePolicy}. */
export async function loadFor(text: string): Promise<void> {
  // The letters of `conn.tls` can be escaped.
  if (text.includes('tls') || text.includes('\\u') || text.includes('\\x')) await loadCertificateLibrary();
}

/**
 * @param text JSON or YAML from an agent, in either shape; null or empty for no policy
 * @throws {PolicyRefused} when any part of it is invalid, with all problems and their places
 */
export function compilePolicy(
  text: string | null,
  protocol: EndpointProtocol,
  options: CompileOptions = {},
): CompiledPolicy {
  return runAtOnce(compileStepwise(text, protocol, options));
}

/**
 * Compiles a policy like {@link compilePolicy}, while other work goes on: a large one takes a tenth of a second. It takes
 * its time from the processor time in the ports.
 */
export async function compileInTurns(
  text: string,
  protocol: EndpointProtocol,
  options: CompileOptions & { ports: Pick<PolicyPorts, 'processorTime'> },
): Promise<CompiledPolicy> {
  await loadFor(text + (options.frame ? JSON.stringify(options.frame) : ''));
  return options.ports.processorTime.runInTurns(compileStepwise(text, protocol, options));
}

function* compileStepwise(
  text: string | null,
  protocol: EndpointProtocol,
  options: CompileOptions,
): Stepwise<CompiledPolicy> {
  const { internal = false, fixedTermination = false, frame } = options;
  const isEmpty = text === null || text.trim() === '';
  if (isEmpty && isEmptyFrame(frame)) return NO_POLICY;
  const problems = new ProblemList();
  const ports = { ...standalonePorts(), ...options.ports };
  const target = { protocol, internal, fixedTermination };
  const warnings = new Set<string>();
  const warn = (place: string, message: string) => warnings.add(`${place}: ${message}`);
  const policy = yield* compilePhases(isEmpty ? '{}' : text, { target, frame, ports, problems, warn });
  problems.throwIfAny();
  if (warnings.size === 0) return policy;
  ports.onWarnings([...warnings]);
  return { ...policy, warnings: [...warnings].slice(0, MAX_WARNINGS) };
}

export interface PolicyFinding extends PolicyProblem {
  /** A policy with an error cannot run; a warning points out a probable mistake. */
  readonly severity: 'error' | 'warning';
}

/**
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
