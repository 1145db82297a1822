import { runInTurns } from '../../../lib/stepwise.ts';
import type { Refusal } from '../../../management/resources/refusal.ts';
import { type CompileOptions, checkPolicyStepwise } from '../../../traffic-policy/engine.ts';
import type { EndpointProtocol } from '../../../traffic-policy/policy-subjects.ts';

/** Why a traffic policy cannot run; null when it can. Ask before a transaction: a large one takes several turns. */
export async function policyRefusal(
  text: string,
  protocol: EndpointProtocol,
  options: CompileOptions,
): Promise<Refusal | null> {
  const findings = await runInTurns(checkPolicyStepwise(text, [protocol], options));
  const errors = findings.filter(({ severity }) => severity === 'error');
  if (errors[0] === undefined) return null;
  const problems = errors.map(({ place, message }) => (place === '' ? message : `${place}: ${message}`)).join('; ');
  return { code: Number(errors[0].code.replace('ERR_NGROK_', '')), text: `traffic_policy: ${problems}` };
}
