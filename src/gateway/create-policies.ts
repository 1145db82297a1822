import { PACKAGED_REPLACER } from '../packaged.ts';
import { fetchDocument, requestPublic } from '../traffic-policy/fetch-document.ts';
import { publicRequest } from '../traffic-policy/public-request.ts';
import { ReplacementThread } from '../traffic-policy/replacement-thread.ts';
import { policySecrets } from './access/policy-secrets.ts';
import { EndpointPolicies } from './endpoints/endpoint-policies.ts';
import { signInNotes } from './events/activity-log.ts';
import type { GatewayStart } from './gateway-options.ts';
import { createShareLinks, ownerOf } from './share-links/share-links.ts';
import { createSignIn } from './sign-in/create-sign-in.ts';
import type { PeopleProvider } from './sign-in/people-provider.ts';
import { recordSignIns, signOut } from './sign-in/recorded-sign-ins.ts';
import type { Activity } from './store/events.ts';

/** What compiles the policies of endpoints, with everything that their actions reach. */
export function createPolicies(
  { options, store, ipPolicies, addressDatabases, log }: GatewayStart,
  people: PeopleProvider,
  activity: Activity,
): EndpointPolicies {
  const {
    policyNetworks: allowed,
    fetchForPolicies: fetch = (url, maxBytes) => fetchDocument(url, maxBytes, allowed),
    requestForSignIn: ask = (url, maxBytes, request) => requestPublic(url, maxBytes, request, allowed),
  } = options;
  return new EndpointPolicies({
    ipPolicies,
    hasCertificateAuthority: (id) => store.certificateAuthorities.get(id) !== null,
    secret: policySecrets(store),
    fetch,
    request: (outbound, signal) => publicRequest(outbound, signal, allowed),
    signIn: createSignIn(
      {
        ...store,
        people,
        begin: recordSignIns(store),
        signOut: (id) => signOut(store, id, log),
        ownerOf: (payer) => ownerOf(payer, store) ?? '',
        onEnd: signInNotes(activity),
      },
      ask,
    ),
    shareLinks: createShareLinks(store, log),
    share: options.agentLimits?.policyShare,
    ...(addressDatabases && { findAddress: (address: string) => addressDatabases.find(address) }),
    replacements: new ReplacementThread(PACKAGED_REPLACER),
    log,
  });
}
