import type { Router } from 'express';
import { ApiError } from '../../lib/errors.ts';
import type { Links } from './api-context.ts';
import type { Guards } from './guards.ts';
import { strictRouter } from './operation-router.ts';

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

/**
 * Answers unmodified clients about kinds that this gateway does not have: their lists are empty, so that programs that read
 * everything work, and all else is 404 with one code.
 */
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
