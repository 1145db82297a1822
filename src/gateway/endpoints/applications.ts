import { isAdmitted } from '../../traffic-policy/access.ts';
import type { SignedInPerson } from '../../traffic-policy/sign-in/identity-provider.ts';
import type { LiveEndpoint, LiveFinder } from './live-view.ts';

/** The endpoints at which a person may sign in; further rules of their policies can refuse requests. */
export function admitting(
  online: Pick<LiveFinder, 'endpointsWithPeople'>,
  person: Pick<SignedInPerson, 'email' | 'groups'>,
): LiveEndpoint[] {
  const isFor = ({ admission }: LiveEndpoint) => admission !== undefined && isAdmitted(admission, person);
  return online.endpointsWithPeople().filter(isFor);
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
