import type { TlsTermination } from '../../../traffic-policy/policy-subjects.ts';

/** How the edge terminates TLS: what endpoints can ask for, and the old versions that a TLS edge may allow. */
export interface HandshakeDemands extends Omit<TlsTermination, 'minVersion'> {
  readonly minVersion: TlsTermination['minVersion'] | '1.0' | '1.1';
}

/**
 * Combines what is demanded already, for example by the agent's binding, with what a policy demands for one connection.
 * The policy takes precedence, but never lowers what is demanded of the client.
 */
export function mergeDemands(base: TlsTermination | null, policy: TlsTermination | null): TlsTermination | null {
  if (policy === null || base === null) return policy ?? base;
  const { certificate, privateKey } = policy.certificate === null ? base : policy;
  const { clientAuthorities, clientVerification } = policy.clientAuthorities.length === 0 ? base : policy;
  return { ...policy, certificate, privateKey, clientAuthorities, clientVerification };
}

type ClientDemands = Pick<TlsTermination, 'clientAuthorities' | 'clientVerification'>;

/** Whether a handshake has already demanded of the client what a policy demands. */
export function meetsClientDemands(policy: ClientDemands, handshake: ClientDemands | null): boolean {
  if (policy.clientAuthorities.length === 0) return true;
  return handshake !== null && describe(policy) === describe(handshake);
}

function describe({ clientAuthorities, clientVerification }: ClientDemands): string {
  return [clientVerification, ...clientAuthorities].join('\n');
}
