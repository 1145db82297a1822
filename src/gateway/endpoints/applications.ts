import { isAdmitted } from '../../traffic-policy/access.ts';
import type { SignedInPerson } from '../../traffic-policy/sign-in/identity-provider.ts';
import type { LiveEndpoint } from './live-view.ts';

/** The endpoints at which a person may sign in; further rules of their policies can refuse requests. */
export function admitting(
  endpoints: readonly LiveEndpoint[],
  person: Pick<SignedInPerson, 'email' | 'groups'>,
): LiveEndpoint[] {
  return endpoints.filter(({ admission }) => admission !== undefined && isAdmitted(admission, person));
}

/**
 * What a person can open by a link, by URL: pools, and agents with two sessions, have one several times.
 *
 * @param port by which the person's browser has reached the gateway; empty: the usual one
 */
export function applicationsOf(admitted: readonly LiveEndpoint[], port: string): { url: string; name: string }[] {
  const names = new Map<string, string>();
  for (const { proto, host, internal, url, name, description } of admitted) {
    if (proto !== 'https' || internal || host.includes('*')) continue;
    const address = Object.assign(new URL(url), { port }).href;
    names.set(address, names.get(address) || name || description);
  }
  return [...names].map(([url, name]) => ({ url, name })).sort((a, b) => (a.url < b.url ? -1 : 1));
}
