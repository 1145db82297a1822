import { messageOf } from '../lib/errors.ts';
import { ksuidOf } from '../lib/ids.ts';
import type { Log } from '../lib/log.ts';
import type { Live, LiveEndpoint, LiveSession, LiveTunnel, Revocation, SessionCommand } from './api/live.ts';
import type { EndpointRegistry } from './endpoints.ts';
import type { AgentSession } from './sessions/agent-session.ts';
import type { BoundEndpoint } from './sessions/bound-endpoint.ts';
import { Refusal } from './sessions/refusal.ts';
import type { SessionServer } from './sessions/session-server.ts';
import { timestamp } from './store/store.ts';

/** What the agents' sessions look like to the management API, and how it takes rights away from them. */
export class LiveAgents implements Live {
  constructor(
    private readonly server: SessionServer,
    private readonly registry: EndpointRegistry,
    private readonly log: Log,
  ) {}

  sessions(): readonly LiveSession[] {
    // Several connections of one agent are one session, and share its id.
    const byId = new Map([...this.server.sessions].map((session) => [session.id, session]));
    return [...byId.values()].map((session) => ({
      id: session.id,
      agentVersion: `${session.agent.clientType}/${session.agent.version}`,
      credentialId: session.credential.id,
      ip: session.address,
      os: session.agent.os,
      startedAt: timestamp(session.startedAt.getTime()),
      transport: 'ngrok/2',
      metadata: session.agent.metadata,
    }));
  }

  tunnels(): readonly LiveTunnel[] {
    return this.#bound(([session, endpoint]) => ({
      id: tunnelId(endpoint),
      sessionId: session.id,
      endpointId: endpoint.publicId,
      publicUrl: endpoint.url,
      proto: endpoint.protocol,
      labels: null,
      startedAt: timestamp(endpoint.boundAt.getTime()),
      metadata: endpoint.metadata,
      forwardsTo: endpoint.forwardsTo,
    }));
  }

  endpoints(): readonly LiveEndpoint[] {
    return this.#bound(([session, endpoint]) => ({
      id: endpoint.publicId,
      type: 'ephemeral',
      proto: endpoint.protocol,
      host: endpoint.host,
      port: endpoint.port,
      url: endpoint.url,
      createdAt: timestamp(endpoint.boundAt.getTime()),
      updatedAt: timestamp(endpoint.boundAt.getTime()),
      metadata: endpoint.metadata,
      description: '',
      name: '',
      tunnelId: tunnelId(endpoint),
      sessionId: session.id,
      edgeId: null,
      ownerId: session.credential.ownerId,
      upstreamUrl: endpoint.forwardsTo,
      poolingEnabled: endpoint.pooled,
    }));
  }

  command(sessionId: string, command: SessionCommand): boolean {
    const session = [...this.server.sessions].find(({ id }) => id === sessionId);
    if (!session) return false;
    const { commands } = session;
    const sent = {
      stop: () => commands.stop(),
      restart: () => commands.restart(),
      update: () => commands.update('', false),
    };
    sent[command]().catch((error: unknown) => {
      this.log.warn({ session: sessionId, command, reason: messageOf(error) }, 'the agent did not follow a command');
    });
    return true;
  }

  revoke({ credentialIds = [], ...names }: Revocation): void {
    for (const session of [...this.server.sessions]) {
      if (credentialIds.includes(session.credential.id)) this.#end(session);
      else if (names.domain !== undefined || names.narrowedId === session.credential.id) stopForbidden(session);
    }
  }

  /** Each endpoint ends with the reason; then the session, whose agent will be refused when it comes back. */
  #end(session: AgentSession): void {
    const reason = 'the authtoken was revoked';
    for (const endpoint of [...session.endpoints]) session.stopEndpoint(endpoint, reason, 'ERR_NGROK_300');
    session.end(new Error(reason));
  }

  #bound<T>(show: (bound: [AgentSession, BoundEndpoint]) => T): T[] {
    const online = new Set(this.registry.list());
    return [...this.server.sessions].flatMap((session) =>
      [...session.endpoints].filter((endpoint) => online.has(endpoint)).map((endpoint) => show([session, endpoint])),
    );
  }
}

/** Ends the endpoints that the session's credential no longer allows, or whose name is no longer reserved. */
function stopForbidden(session: AgentSession): void {
  for (const endpoint of [...session.endpoints]) {
    try {
      session.credential.authorize({ kind: 'hostname', hostname: endpoint.host });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      session.stopEndpoint(endpoint, error.message, error.code);
    }
  }
}

/** An endpoint of an agent and its tunnel share their KSUID. */
function tunnelId({ publicId }: BoundEndpoint): string {
  return `tn_${ksuidOf(publicId)}`;
}
