import type { HandshakeParties } from '../lib/network/metered-connection.ts';
import { PACKAGED_REPLACER } from '../packaged.ts';
import { fetchDocument, requestPublic } from '../traffic-policy/fetch-document.ts';
import type { PolicyKnowledge } from '../traffic-policy/ports.ts';
import { publicRequest } from '../traffic-policy/public-request.ts';
import { ReplacementThreads } from '../traffic-policy/replacement-threads.ts';
import { policySecrets } from './access/policy-secrets.ts';
import type { AddressDatabasePaths } from './endpoints/address-databases.ts';
import { EndpointPolicies } from './endpoints/endpoint-policies.ts';
import { signInNotes } from './events/activity-log.ts';
import type { GatewayStart } from './gateway-options.ts';
import { createShareLinks, ownerOf } from './share-links/share-links.ts';
import { createSignIn } from './sign-in/create-sign-in.ts';
import type { PeopleProvider } from './sign-in/people-provider.ts';
import { recordSignIns, signOut } from './sign-in/recorded-sign-ins.ts';
import type { Activity } from './store/events.ts';
import type { Store } from './store/store.ts';

/** What compiles the policies of endpoints, with everything that their actions reach. */
export function createPolicies(
  { options, store, ipPolicies, policyKnowledge: knowledge, addressDatabases, log }: GatewayStart,
  people: PeopleProvider,
  activity: Activity,
): EndpointPolicies {
  const {
    policyNetworks: allowed,
    fetchForPolicies: fetch = (url: string, maxBytes: number, parties?: HandshakeParties) =>
      fetchDocument(url, maxBytes, allowed, parties),
    requestForSignIn: ask = (url, maxBytes, request) => requestPublic(url, maxBytes, request, allowed),
  } = options;
  return new EndpointPolicies({
    ipPolicies,
    knowledge,
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
    replacements: new ReplacementThreads(PACKAGED_REPLACER),
    log,
  });
}

/** What policies can rely on at this gateway, for warnings about those that rely on more. */
export function policyKnowledge(
  { people }: Pick<Store, 'people'>,
  { geo, asn }: AddressDatabasePaths,
): PolicyKnowledge {
  return {
    hasPerson: (email) => people.byEmail(email) !== null,
    hasMembers: (group) => people.count('EXISTS (SELECT 1 FROM json_each(groups) WHERE value = ?)', [group]) > 0,
    databases: { geo: geo !== null, as: asn !== null },
  };
}
