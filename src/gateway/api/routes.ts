import type { Router } from 'express';
import { ApiError } from '../../lib/errors.ts';
import { OPERATIONS, type Operation } from '../../management/operations.ts';
import { serviceUsers } from '../../management/resources/bot-user.ts';
import { TunnelSessionUpdateBody } from '../../management/resources/tunnel.ts';
import { applicationSessionActions, applicationUserActions } from './actions/application-session-actions.ts';
import { httpResponseBackendActions, tunnelGroupBackendActions } from './actions/backend-actions.ts';
import { certificateAuthorityActions, tlsCertificateActions } from './actions/certificate-actions.ts';
import { apiKeyActions, botUserActions, credentialActions } from './actions/credential-actions.ts';
import { deviceActions, enrolmentKeyActions } from './actions/device-actions.ts';
import { endpointActions } from './actions/endpoint-actions.ts';
import { auditEventActions, eventDestinationActions, eventSubscriptionActions } from './actions/event-actions.ts';
import { ipPolicyActions, ipPolicyRuleActions, ipRestrictionActions } from './actions/ip-policy-actions.ts';
import { tunnelActions, tunnelSessionActions } from './actions/online-actions.ts';
import { personActions } from './actions/person-actions.ts';
import { reservedAddrActions } from './actions/reserved-addr-actions.ts';
import { endpointConfigurationActions, reservedDomainActions } from './actions/reserved-domain-actions.ts';
import { shareLinkActions } from './actions/share-link-actions.ts';
import { tlsEdgeActions } from './actions/tls-edge-actions.ts';
import { secretActions, vaultActions } from './actions/vault-actions.ts';
import type { ApiContext, Links } from './api-context.ts';
import type { Guards } from './guards.ts';
import { type ActionsOf, operationRouter, strictRouter } from './operation-router.ts';

/** The routes of all operations. */
export function createRouters(context: ApiContext, guards: Guards): Router[] {
  const serve = <Family extends Readonly<Record<string, Operation>>>(
    family: Family,
    actions: ActionsOf<NoInfer<Family>>,
  ) => operationRouter(family, actions, guards, context);
  const edges = tlsEdgeActions(context);
  // ngrok's TypeScript client sends a body.
  const updateSession = { ...OPERATIONS.tunnelSessions.update, body: TunnelSessionUpdateBody };
  return [
    serve(OPERATIONS.reservedDomains, reservedDomainActions(context)),
    serve(OPERATIONS.tlsEdges, edges),
    serve(OPERATIONS.tlsEdgeBackend, edges.module('backend')),
    serve(OPERATIONS.tlsEdgeIpRestriction, edges.module('ip_restriction')),
    serve(OPERATIONS.tlsEdgeMutualTls, edges.module('mutual_tls')),
    serve(OPERATIONS.tlsEdgeTlsTermination, edges.module('tls_termination')),
    serve(OPERATIONS.tlsEdgeTrafficPolicy, edges.module('traffic_policy')),
    serve(OPERATIONS.botUsers, botUserActions(context)),
    serve(OPERATIONS.serviceUsers, botUserActions(context, serviceUsers)),
    serve(OPERATIONS.credentials, credentialActions(context)),
    serve(OPERATIONS.apiKeys, apiKeyActions(context)),
    serve(OPERATIONS.httpResponseBackends, httpResponseBackendActions(context)),
    serve(OPERATIONS.tunnelGroupBackends, tunnelGroupBackendActions(context)),
    serve(OPERATIONS.ipPolicies, ipPolicyActions(context)),
    serve(OPERATIONS.ipPolicyRules, ipPolicyRuleActions(context)),
    serve(OPERATIONS.ipRestrictions, ipRestrictionActions(context)),
    serve(OPERATIONS.certificateAuthorities, certificateAuthorityActions(context)),
    serve(OPERATIONS.tlsCertificates, tlsCertificateActions(context)),
    serve(OPERATIONS.endpointConfigurations, endpointConfigurationActions(context)),
    serve(OPERATIONS.enrolmentKeys, enrolmentKeyActions(context)),
    serve(OPERATIONS.devices, deviceActions(context)),
    serve(OPERATIONS.vaults, vaultActions(context)),
    serve(OPERATIONS.secrets, secretActions(context)),
    serve(OPERATIONS.people, personActions(context)),
    serve(OPERATIONS.reservedAddrs, reservedAddrActions(context)),
    serve(OPERATIONS.shareLinks, shareLinkActions(context)),
    serve(OPERATIONS.applicationUsers, applicationUserActions(context)),
    serve(OPERATIONS.applicationSessions, applicationSessionActions(context)),
    serve(OPERATIONS.auditEvents, auditEventActions(context)),
    serve(OPERATIONS.eventDestinations, eventDestinationActions(context)),
    serve(OPERATIONS.eventSubscriptions, eventSubscriptionActions(context)),
    serve(OPERATIONS.endpoints, endpointActions(context)),
    serve(OPERATIONS.tunnels, tunnelActions(context)),
    serve({ ...OPERATIONS.tunnelSessions, update: updateSession }, tunnelSessionActions(context)),
  ];
}

/** The kinds of ngrok's API that this gateway does not have: path, and the member of a list's answer with the items. */
const KINDS: Readonly<Record<string, string | null>> = {
  '/abuse_reports': null,
  '/agent_ingresses': 'ingresses',
  '/ai_gateway_api_keys': 'ai_gateway_api_keys',
  '/backends/failover': 'backends',
  '/backends/static': 'backends',
  '/backends/weighted': 'backends',
  '/edges/https': 'https_edges',
  '/edges/tcp': 'tcp_edges',
  '/kubernetes_operators': 'operators',
  '/ssh_certificate_authorities': 'ssh_certificate_authorities',
  '/ssh_credentials': 'ssh_credentials',
  '/ssh_host_certificates': 'ssh_host_certificates',
  '/ssh_user_certificates': 'ssh_user_certificates',
};

/** Answers clients about kinds that this gateway lacks: empty lists, so that programs that read everything work, else 404. */
export function unsupportedKinds(guards: Guards, links: Links): Router {
  const router = strictRouter();
  for (const [path, listKey] of Object.entries(KINDS)) {
    if (listKey !== null)
      router.get(path, ...guards.list, (_req, res) => {
        res.json({ [listKey]: [], uri: links.to(path), next_page_uri: null });
      });
    router.use(path, () => {
      throw new ApiError(404, 'ERR_GATEWAY_NOT_SUPPORTED', `this gateway has no ${path}; ngrok's cloud has`);
    });
  }
  return router;
}
