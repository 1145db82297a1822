import { sendJson, sendNothing } from '../../lib/http-answer.ts';
import { type HttpRouter, httpRouter, type RoutedRequest } from '../../lib/http-router.ts';
import { inPlainWords } from '../../lib/plain-words.ts';
import { AgentError } from '../errors/agent-error.ts';
import { problemsOf } from '../tunnels/problems.ts';
import { TunnelRequest } from '../tunnels/tunnel.ts';
import type { TunnelManager } from '../tunnels/tunnel-manager.ts';
import { methodNotAllowed } from './error-handler.ts';
import { jsonBody } from './json-body.ts';
import { presentCreated, presentDetail, presentItem } from './present.ts';

/** `/tunnels`: list, start, show and delete. */
export function tunnelsRouter(tunnels: TunnelManager): HttpRouter {
  const router = httpRouter();
  router
    .route('/tunnels')
    .get((_req, res) => {
      sendJson(
        res,
        tunnels.list().map((view) => presentItem(view, tunnels)),
      );
    })
    .post(...jsonBody(), async (req, res) => {
      sendJson(res, presentCreated(await tunnels.create(parseRequest(req.body))));
    })
    .all(methodNotAllowed('GET, HEAD, POST'));
  router
    .route('/tunnels/:url_part')
    .get((req, res) => {
      sendJson(res, presentDetail(tunnels.find(urlPartOf(req)), tunnels));
    })
    .delete(async (req, res) => {
      await tunnels.remove(tunnels.find(urlPartOf(req)));
      sendNothing(res);
    })
    .all(methodNotAllowed('GET, HEAD, DELETE'));
  return router;
}

/** There is a route only with one. */
const urlPartOf = ({ params }: RoutedRequest): string => params.url_part ?? '';

function parseRequest(body: unknown): TunnelRequest {
  const parsed = TunnelRequest.safeParse(body, { error: inPlainWords });
  if (parsed.success) return parsed.data;
  const details = problemsOf(parsed.error);
  const [[place, problem] = [], ...others] = Object.entries(details);
  const more = others.length > 0 ? ` (and ${others.length} more, see details)` : '';
  throw new AgentError('ERR_AGENT_INVALID_REQUEST', `${place}: ${problem}${more}`, { details });
}
