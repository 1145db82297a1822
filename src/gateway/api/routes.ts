import type { Router } from 'express';
import { apiKeys } from '../../management/resources/api-key.ts';
import { httpResponseBackends, tunnelGroupBackends } from '../../management/resources/backend.ts';
import { botUsers, serviceUsers } from '../../management/resources/bot-user.ts';
import { certificateAuthorities, tlsCertificates } from '../../management/resources/certificate.ts';
import { credentials } from '../../management/resources/credential.ts';
import { endpoints } from '../../management/resources/endpoint.ts';
import { enrolmentKeys } from '../../management/resources/enrolment-key.ts';
import { ipPolicies, ipPolicyRules } from '../../management/resources/ip-policy.ts';
import { type DnsCheck, endpointConfigurations, reservedDomains } from '../../management/resources/reserved-domain.ts';
import { type TlsEdgeModuleName, tlsEdgeModules, tlsEdges } from '../../management/resources/tls-edge.ts';
import { TunnelSessionUpdateBody, tunnelSessions, tunnels } from '../../management/resources/tunnel.ts';
import type { SessionCommand } from '../endpoints/live-view.ts';
import { httpResponseBackendActions, tunnelGroupBackendActions } from './actions/backend-actions.ts';
import { botUserActions } from './actions/bot-user-actions.ts';
import { certificateAuthorityActions, tlsCertificateActions } from './actions/certificate-actions.ts';
import { apiKeyActions, credentialActions } from './actions/credential-actions.ts';
import { deviceRouter, enrolmentKeyActions } from './actions/device-actions.ts';
import { dnsChecker } from './actions/dns-check-actions.ts';
import { ipPolicyActions, ipPolicyRuleActions } from './actions/ip-policy-actions.ts';
import {
  endpointActions,
  type TunnelSessionActions,
  tunnelActions,
  tunnelSessionActions,
} from './actions/online-actions.ts';
import {
  type Detachable,
  endpointConfigurationActions,
  type ReservedDomainActions,
  reservedDomainActions,
} from './actions/reserved-domain-actions.ts';
import { type TlsEdgeActions, tlsEdgeActions } from './actions/tls-edge-actions.ts';
import type { ApiContext } from './api-context.ts';
import type { Guards } from './guards.ts';
import { readBody } from './request.ts';
import { idOf, readRouter, resourceRouter, strictRouter } from './resource-router.ts';

export function createRouters(context: ApiContext, guards: Guards): Router[] {
  const { links } = context;
  const domains = reservedDomainActions(context);
  const edges = tlsEdgeActions(context);
  const sessions = tunnelSessionActions(context);
  return [
    resourceRouter(reservedDomains, domains, guards, links),
    detachRouter(domains, guards),
    dnsCheckRouter(dnsChecker(context), guards),
    resourceRouter(tlsEdges, edges, guards, links),
    moduleRouter(edges, guards),
    resourceRouter(botUsers, botUserActions(context), guards, links),
    resourceRouter(serviceUsers, botUserActions(context, serviceUsers), guards, links),
    resourceRouter(credentials, credentialActions(context), guards, links),
    resourceRouter(apiKeys, apiKeyActions(context), guards, links),
    resourceRouter(httpResponseBackends, httpResponseBackendActions(context), guards, links),
    resourceRouter(tunnelGroupBackends, tunnelGroupBackendActions(context), guards, links),
    resourceRouter(ipPolicies, ipPolicyActions(context), guards, links),
    resourceRouter(ipPolicyRules, ipPolicyRuleActions(context), guards, links),
    resourceRouter(certificateAuthorities, certificateAuthorityActions(context), guards, links),
    resourceRouter(tlsCertificates, tlsCertificateActions(context), guards, links),
    resourceRouter(endpointConfigurations, endpointConfigurationActions(context), guards, links),
    resourceRouter(enrolmentKeys, enrolmentKeyActions(context), guards, links),
    deviceRouter(context, guards),
    readRouter(endpoints, endpointActions(context), guards, links),
    readRouter(tunnels, tunnelActions(context), guards, links),
    readRouter(tunnelSessions, sessions, guards, links),
    commandRouter(sessions, guards),
  ];
}

const DETACHABLE: readonly Detachable[] = [
  'certificate',
  'certificate_management_policy',
  'http_endpoint_configuration',
  'https_endpoint_configuration',
];

function detachRouter(actions: ReservedDomainActions, guards: Guards): Router {
  const router = strictRouter();
  for (const what of DETACHABLE) {
    const path: string = `${reservedDomains.path}/:id/${what}`;
    router.delete(path, ...guards.plain, async (req, res) => {
      await actions.detach(idOf(req), what);
      res.status(204).end();
    });
  }
  return router;
}

function dnsCheckRouter(check: (id: string) => Promise<DnsCheck>, guards: Guards): Router {
  const router = strictRouter();
  const path: string = `${reservedDomains.path}/:id/check_dns`;
  router.post(path, ...guards.plain, async (req, res) => {
    res.json(await check(idOf(req)));
  });
  return router;
}

function moduleRouter(actions: TlsEdgeActions, guards: Guards): Router {
  const router = strictRouter();
  for (const name of Object.keys(tlsEdgeModules) as TlsEdgeModuleName[]) {
    const path: string = `${tlsEdges.path}/:id/${name}`;
    const schema = tlsEdgeModules[name].body;
    router.get(path, ...guards.plain, (req, res) => {
      res.json(actions.getModule(idOf(req), name));
    });
    router.put(path, ...guards.withBody, async (req, res) => {
      res.json(await actions.replaceModule(idOf(req), name, readBody(schema, 'PUT', req.body)));
    });
    router.delete(path, ...guards.plain, async (req, res) => {
      await actions.removeModule(idOf(req), name);
      res.status(204).end();
    });
  }
  return router;
}

function commandRouter(actions: TunnelSessionActions, guards: Guards): Router {
  const router = strictRouter();
  const path = (command: SessionCommand): string => `${tunnelSessions.path}/:id/${command}`;
  for (const command of ['restart', 'stop'] as const) {
    // ngrok's TypeScript client sends the id as a text.
    router.post(path(command), ...guards.plain, (req, res) => {
      actions.command(idOf(req), command);
      res.status(204).end();
    });
  }
  router.post(path('update'), ...guards.withBody, (req, res) => {
    readBody(TunnelSessionUpdateBody, 'POST', req.body);
    actions.command(idOf(req), 'update');
    res.status(204).end();
  });
  return router;
}
