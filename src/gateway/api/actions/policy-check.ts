import { runInTurns } from '../../../lib/stepwise.ts';
import type { Refusal } from '../../../management/resources/refusal.ts';
import { type CompileOptions, checkPolicyStepwise } from '../../../traffic-policy/engine.ts';
import type { EndpointProtocol } from '../../../traffic-policy/policy-subjects.ts';

interface PolicyCheck {
  /** Why it cannot run; null when it can. */
  readonly refusal: Refusal | null;
  /** What is probably wrong with it. */
  readonly warnings: readonly string[];
}

/** Checks a traffic policy. Ask before a transaction: a large one takes several turns. */
export async function checkPolicyText(
  text: string,
  protocol: EndpointProtocol,
  options: CompileOptions,
): Promise<PolicyCheck> {
  const findings = await runInTurns(checkPolicyStepwise(text, [protocol], options));
  const textsOf = (severity: 'error' | 'warning') =>
    findings
      .filter((finding) => finding.severity === severity)
      .map(({ place, message }) => (place === '' ? message : `${place}: ${message}`));
  const [errors, warnings] = [textsOf('error'), textsOf('warning')];
  const [first] = findings;
  if (first?.severity !== 'error') return { refusal: null, warnings };
  const code = Number(first.code.replace('ERR_NGROK_', ''));
  return { refusal: { code, text: `traffic_policy: ${errors.join('; ')}` }, warnings };
}
