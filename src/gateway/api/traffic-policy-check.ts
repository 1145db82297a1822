import type { Refusal } from '../../management/resources/refusal.ts';
import { checkPolicy } from '../../traffic-policy/check-policy.ts';
import type { PolicyPorts } from '../../traffic-policy/ports.ts';

/**
 * Makes the check whether a traffic policy can be run on a TLS edge, which carries no HTTP of its own.
 *
 * @param ipPolicies looks up the IP policies that it may name
 * @returns a function of the document, JSON or YAML: everything that is wrong with it and where, with the first one's
 *   code of the documentation's catalogue; or null
 */
export function trafficPolicyCheck(ipPolicies: PolicyPorts['ipPolicies']): (document: string) => Refusal | null {
  return (document) => {
    const findings = checkPolicy(document, ['tls'], { ports: { ipPolicies }, fixedTermination: true });
    const errors = findings.filter(({ severity }) => severity === 'error');
    if (errors[0] === undefined) return null;
    const text = errors.map(({ place, message }) => (place === '' ? message : `${place}: ${message}`)).join('; ');
    return { code: Number(errors[0].code.replace('ERR_NGROK_', '')), text };
  };
}
