import { sendJson, sendText } from '../../lib/http-answer.ts';
import { type HttpRouter, httpRouter } from '../../lib/http-router.ts';
import type { SessionStatus } from '../connectors/connector.ts';
import { AgentError } from '../errors/agent-error.ts';
import type { TunnelManager } from '../tunnels/tunnel-manager.ts';
import { methodNotAllowed } from './error-handler.ts';
import type { Metrics } from './metrics.ts';

export interface HealthSource {
  tunnels: TunnelManager;
  session: () => SessionStatus;
  metrics: () => Promise<Metrics>;
  version: string;
  /** Seconds since the start. */
  uptime: () => number;
  /** Where the agent is reached, by what it is (`api`, `agent`, …); for `/status`. */
  addresses: () => Record<string, string | null>;
}

/** `/healthz`: says that the process answers, and nothing that would be worth a token. */
export function livenessRouter(): HttpRouter {
  const router = httpRouter();
  router
    .route('/healthz')
    .get((_req, res) => {
      sendJson(res, { status: 'alive' });
    })
    .all(methodNotAllowed('GET, HEAD'));
  return router;
}

/** `/readyz`, `/status` and `/metrics`. */
export function healthRouter(source: HealthSource): HttpRouter {
  const router = httpRouter();
  router
    .route('/readyz')
    .get((_req, res) => {
      const problems = obstacles(source);
      if (Object.keys(problems).length > 0) {
        const msg = `not ready: ${Object.values(problems).join('; ')}`;
        throw new AgentError('ERR_AGENT_NOT_READY', msg, { details: problems });
      }
      sendJson(res, { status: 'ready' });
    })
    .all(methodNotAllowed('GET, HEAD'));
  router
    .route('/status')
    .get((_req, res) => {
      sendJson(res, presentStatus(source));
    })
    .all(methodNotAllowed('GET, HEAD'));
  router
    .route('/metrics')
    .get(async (_req, res) => {
      const { registry } = await source.metrics();
      sendText(res, registry.contentType, await registry.metrics());
    })
    .all(methodNotAllowed('GET, HEAD'));
  return router;
}

function obstacles({ tunnels, session }: HealthSource): Record<string, string> {
  const { state, gateway } = session();
  const { online, connecting, offline, failed } = tunnels.counts();
  const down = connecting + offline + failed;
  return {
    ...(state !== 'online' && { session: `the session with ${gateway} is ${state}` }),
    ...(down > 0 && { tunnels: `${down} of ${online + down} tunnels are not online` }),
  };
}

/** The answer of `/status`. */
export type StatusReport = ReturnType<typeof presentStatus>;

function presentStatus({ version, uptime, session, tunnels, addresses }: HealthSource) {
  const { state, since, gateway, reconnects, lastError } = session();
  return {
    version,
    uptime_seconds: Math.floor(uptime()),
    session: { state, since: since.toISOString(), gateway, reconnects, last_error: lastError },
    tunnels: { total: tunnels.list().length, ...tunnels.counts() },
    addresses: addresses(),
  };
}
