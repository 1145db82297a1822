import { compilePhases } from './compile-phases.ts';
import { type CompiledPolicy, NO_POLICY } from './compiled-policy.ts';
import { isEmptyFrame, type PolicyFrame } from './policy-frame.ts';
import { ProblemList } from './policy-refused.ts';
import type { EndpointProtocol } from './policy-subjects.ts';
import { type PolicyPorts, standalonePorts } from './ports.ts';
import { loadCertificateLibrary } from './scope/certificate-variables.ts';

export { type CompiledPolicy, NO_POLICY } from './compiled-policy.ts';
export { PolicyRefused } from './policy-refused.ts';

/** What a policy is compiled for, and with. */
export interface CompileOptions {
  /** What policies need of the world; those left out lead nowhere. */
  readonly ports?: Partial<PolicyPorts>;
  /** Whether the endpoint is one that only other policies can reach. */
  readonly internal?: boolean;
  /** Whether something else says how TLS is ended: terminate-tls can then ask for nothing but the defaults. */
  readonly fixedTermination?: boolean;
  /** Rules that run around those of the policy. */
  readonly frame?: PolicyFrame;
}

/**
 * Loads what only some policies need while they run.
 *
 * @param text of the policy, which is not to run before this has resolved
 */
export async function loadFor(text: string): Promise<void> {
  // A letter of `conn.tls` can be escaped.
  if (text.includes('tls') || text.includes('\\u') || text.includes('\\x')) await loadCertificateLibrary();
}

/**
 * Makes a policy ready to run.
 *
 * @param text as an agent sends it, JSON or YAML, in either shape; null or empty for no policy
 * @param protocol of the endpoint; tcp and tls have the phase on_tcp_connect alone
 * @throws {PolicyRefused} when any part of it cannot be run, with every problem and its place
 */
export function compilePolicy(
  text: string | null,
  protocol: EndpointProtocol,
  options: CompileOptions = {},
): CompiledPolicy {
  const { internal = false, fixedTermination = false, frame } = options;
  const isEmpty = text === null || text.trim() === '';
  if (isEmpty && isEmptyFrame(frame)) return NO_POLICY;
  const problems = new ProblemList();
  const ports = { ...standalonePorts(), ...options.ports };
  const target = { protocol, internal, fixedTermination };
  const policy = compilePhases(isEmpty ? '{}' : text, { target, frame, ports, problems, warn: () => {} });
  problems.throwIfAny();
  return policy;
}
