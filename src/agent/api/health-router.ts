import type { Router } from 'express';
import { AgentError } from '../errors/agent-error.ts';
import type { DeviceHistory } from '../history/device-history.ts';
import { HEALTH_OPERATIONS, LIVENESS_OPERATIONS } from './agent-operations.ts';
import { serve } from './agent-routes.ts';
import { deviceHistory } from './history-answers.ts';
import { type HealthSource, presentStatus, type RemoteApi } from './status-report.ts';

/** `/healthz`: answers while the process is alive, and reveals nothing that needs a token. */
export function livenessRouter(): Router {
  return serve(LIVENESS_OPERATIONS, { getLiveness: () => ({ status: 'alive' as const }) });
}

/** `/readyz`, `/status`, `/history`, `/metrics` and `/openapi.json`. */
export function healthRouter(source: HealthSource, history: Pick<DeviceHistory, 'slots'>): Router {
  return serve(HEALTH_OPERATIONS, {
    getReadiness: () => {
      const problems = notReady(source);
      if (Object.keys(problems).length > 0) {
        const msg = `not ready: ${Object.values(problems).join('; ')}`;
        throw new AgentError('ERR_AGENT_NOT_READY', msg, { details: problems });
      }
      return { status: 'ready' as const };
    },
    getStatus: () => presentStatus(source),
    getHistory: () => deviceHistory(history),
    getMetrics: async ({ res }) => {
      const { registry } = await source.metrics();
      res.set('Content-Type', registry.contentType).send(await registry.metrics());
    },
    getOpenApi: async () => {
      // Loaded on demand: few agents are ever asked.
      const { agentOpenApi } = await import('./agent-openapi.ts');
      return agentOpenApi(source.version);
    },
  });
}

function notReady({ tunnels, upstreams, session, remoteApi }: HealthSource): Record<string, string> {
  const { state, gateway } = session();
  upstreams.look();
  const { online, connecting, offline, failed } = tunnels.counts();
  const down = connecting + offline + failed;
  return {
    ...(state !== 'online' && { session: `the session with ${gateway} is ${state}` }),
    ...(down > 0 && { tunnels: `${down} of ${online + down} tunnels are not online` }),
    ...(upstreams.problem !== null && { upstreams: upstreams.problem }),
    ...(remoteApi && remoteApi.status.state !== 'online' && { remote_api: describeRemoteApi(remoteApi) }),
  };
}

function describeRemoteApi({ url, status: { state, lastError } }: RemoteApi): string {
  const reason =
    lastError && `: ${[lastError.message, lastError.code && `(${lastError.code})`].filter(Boolean).join(' ')}`;
  return `the agent's own domain ${url} is not online (${state})${reason ?? ''}`;
}
