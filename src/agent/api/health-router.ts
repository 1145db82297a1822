import { Router } from 'express';
import { z } from 'zod';
import { SESSION_STATES, type SessionStatus } from '../connectors/connector.ts';
import { AgentError } from '../errors/agent-error.ts';
import { TUNNEL_STATES, type TunnelStatus } from '../tunnels/tunnel.ts';
import type { TunnelManager } from '../tunnels/tunnel-manager.ts';
import { methodNotAllowed } from './error-handler.ts';
import type { Metrics } from './metrics.ts';
import { noQuery } from './parse-input.ts';
import { LastError } from './present.ts';

/** The endpoint of the agent's own API. */
export interface RemoteApi {
  readonly url: string;
  readonly status: TunnelStatus;
}

export interface HealthSource {
  tunnels: TunnelManager;
  /** Null without AGENT_DOMAIN. */
  remoteApi: RemoteApi | null;
  session: () => SessionStatus;
  metrics: () => Promise<Metrics>;
  version: string;
  /** Seconds since the start. */
  uptime: () => number;
  /** The agent's and its gateway's addresses by their names in `/status` (`api`, `agent`, …). */
  addresses: () => Record<string, string | null>;
}

const Count = z.int().nonnegative();

export const StatusReport = z.object({
  version: z.string(),
  uptime_seconds: Count,
  session: z.object({
    state: z.enum(SESSION_STATES),
    since: z.iso.datetime(),
    gateway: z.string(),
    reconnects: Count,
    last_error: LastError,
  }),
  tunnels: z.object({
    total: Count,
    online: Count,
    degraded: Count,
    connecting: Count,
    offline: Count,
    failed: Count,
  }),
  /** The agent's own domain; null without one. */
  remote_api: z
    .object({ url: z.string(), status: z.enum(TUNNEL_STATES), since: z.iso.datetime(), last_error: LastError })
    .nullable(),
  addresses: z.record(z.string(), z.string().nullable()),
});
export type StatusReport = z.infer<typeof StatusReport>;

/** `/healthz`: answers while the process is alive, and reveals nothing that needs a token. */
export function livenessRouter(): Router {
  const router = Router();
  router
    .route('/healthz')
    .get(noQuery, (_req, res) => void res.json({ status: 'alive' }))
    .all(methodNotAllowed('GET, HEAD'));
  return router;
}

/** `/readyz`, `/status` and `/metrics`. */
export function healthRouter(source: HealthSource): Router {
  const router = Router();
  router
    .route('/readyz')
    .get(noQuery, (_req, res) => {
      const problems = notReady(source);
      if (Object.keys(problems).length > 0) {
        const msg = `not ready: ${Object.values(problems).join('; ')}`;
        throw new AgentError('ERR_AGENT_NOT_READY', msg, { details: problems });
      }
      res.json({ status: 'ready' });
    })
    .all(methodNotAllowed('GET, HEAD'));
  router
    .route('/status')
    .get(noQuery, (_req, res) => void res.json(presentStatus(source)))
    .all(methodNotAllowed('GET, HEAD'));
  router
    .route('/metrics')
    .get(noQuery, async (_req, res) => {
      const { registry } = await source.metrics();
      res.set('Content-Type', registry.contentType).send(await registry.metrics());
    })
    .all(methodNotAllowed('GET, HEAD'));
  return router;
}

function notReady({ tunnels, session, remoteApi }: HealthSource): Record<string, string> {
  const { state, gateway } = session();
  const { online, connecting, offline, failed } = tunnels.counts();
  const down = connecting + offline + failed;
  return {
    ...(state !== 'online' && { session: `the session with ${gateway} is ${state}` }),
    ...(down > 0 && { tunnels: `${down} of ${online + down} tunnels are not online` }),
    ...(remoteApi && remoteApi.status.state !== 'online' && { remote_api: describeRemoteApi(remoteApi) }),
  };
}

function describeRemoteApi({ url, status: { state, lastError } }: RemoteApi): string {
  const reason =
    lastError && `: ${[lastError.message, lastError.code && `(${lastError.code})`].filter(Boolean).join(' ')}`;
  return `the agent's own domain ${url} is not online (${state})${reason ?? ''}`;
}

function presentRemoteApi({ url, status: { state, since, lastError } }: RemoteApi): StatusReport['remote_api'] {
  return { url, status: state, since: since.toISOString(), last_error: lastError };
}

/** The body of `GET /status`. */
export function presentStatus(source: Omit<HealthSource, 'metrics'>): StatusReport {
  const { version, uptime, session, tunnels, remoteApi, addresses } = source;
  const { state, since, gateway, reconnects, lastError } = session();
  return {
    version,
    uptime_seconds: Math.floor(uptime()),
    session: { state, since: since.toISOString(), gateway, reconnects, last_error: lastError },
    tunnels: { total: tunnels.list().length, ...tunnels.shownCounts() },
    remote_api: remoteApi && presentRemoteApi(remoteApi),
    addresses: addresses(),
  };
}
