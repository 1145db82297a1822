import { runInTurns } from '../../lib/stepwise.ts';
import type { Refusal } from '../../management/resources/refusal.ts';
import { checkPolicyStepwise } from '../../traffic-policy/engine.ts';
import type { PolicyPorts } from '../../traffic-policy/ports.ts';

/**
 * Creates the check of traffic policies for TLS edges, which handle no HTTP.
 *
 * @param ipPolicies looks up the IP policies that it refers to
 * @returns a function of the document, JSON or YAML: all errors with their places and the code of the first; or null
 */
export function trafficPolicyCheck(
  ipPolicies: PolicyPorts['ipPolicies'],
): (document: string) => Promise<Refusal | null> {
  return async (document) => {
    const options = { ports: { ipPolicies }, fixedTermination: true };
    const findings = await runInTurns(checkPolicyStepwise(document, ['tls'], options));
    const errors = findings.filter(({ severity }) => severity === 'error');
    if (errors[0] === undefined) return null;
    const text = errors.map(({ place, message }) => (place === '' ? message : `${place}: ${message}`)).join('; ');
    return { code: Number(errors[0].code.replace('ERR_NGROK_', '')), text };
  };
}
