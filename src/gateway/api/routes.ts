import type { Router } from 'express';
import { ApiError } from '../../lib/errors.ts';
import { OPERATIONS, type Operation, RESOURCES } from '../../management/operations.ts';
import type { Resource } from '../../management/resources/resource.ts';
import { TunnelSessionUpdateBody } from '../../management/resources/tunnel.ts';
import type { RowTables } from '../store/store.ts';
import { applicationActions } from './actions/application-session-actions.ts';
import { backendActions } from './actions/backend-actions.ts';
import { bulkActionActions } from './actions/bulk-action-actions.ts';
import { certificateActions } from './actions/certificate-actions.ts';
import { accountActions } from './actions/credential-actions.ts';
import { deviceActions } from './actions/device-actions.ts';
import { endpointActions } from './actions/endpoint-actions.ts';
import { eventActions } from './actions/event-actions.ts';
import { historyActions } from './actions/history-actions.ts';
import { ipPolicyActions } from './actions/ip-policy-actions.ts';
import { messageActions } from './actions/message-actions.ts';
import { onlineActions } from './actions/online-actions.ts';
import { personActions } from './actions/person-actions.ts';
import { domainActions } from './actions/reserved-domain-actions.ts';
import { shareLinkActions } from './actions/share-link-actions.ts';
import { type Stored, storedActions } from './actions/stored-actions.ts';
import { tcpAddressActions } from './actions/tcp-address-actions.ts';
import { tlsEdgeActions } from './actions/tls-edge-actions.ts';
import { vaultActions } from './actions/vault-actions.ts';
import type { ApiContext, Links } from './api-context.ts';
import type { Guards } from './guards.ts';
import { type ActionsOf, operationRouter, strictRouter } from './operation-router.ts';

type Family = keyof typeof OPERATIONS;
type AllActions = { [Name in Family]: ActionsOf<(typeof OPERATIONS)[Name]> };

/** What operations do. Families of resources that say what their rows are need no actions of their own. */
function actionsOf(context: ApiContext): Omit<AllActions, keyof RowTables> & Partial<AllActions> {
  return {
    ...accountActions(context),
    ...applicationActions(context),
    ...backendActions(context),
    ...bulkActionActions(context),
    ...certificateActions(context),
    ...deviceActions(context),
    ...domainActions(context),
    ...endpointActions(context),
    ...eventActions(context),
    history: historyActions(context).history,
    ...ipPolicyActions(context),
    ...messageActions(context),
    ...onlineActions(context),
    ...personActions(context),
    ...shareLinkActions(context),
    ...tcpAddressActions(context),
    ...tlsEdgeActions(context),
    ...vaultActions(context),
  };
}

/** The routes of all operations. */
export function createRouters(context: ApiContext, guards: Guards): Router[] {
  // ngrok's TypeScript client sends a body.
  const update = { ...OPERATIONS.tunnelSessions.update, body: TunnelSessionUpdateBody };
  const families = { ...OPERATIONS, tunnelSessions: { ...OPERATIONS.tunnelSessions, update } };
  const actions = actionsOf(context);
  const usual = (family: keyof RowTables) =>
    storedActions(context, { resource: RESOURCES[family], rows: context.store[family] } as Stored<
      Resource,
      { id: string }
    >);
  return Object.entries<Readonly<Record<string, Operation>>>(families).map(([name, family]) =>
    operationRouter(family, actions[name as Family] ?? usual(name as keyof RowTables), guards, context),
  );
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
