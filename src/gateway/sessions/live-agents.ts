import { RpcError } from '../../agent-protocol/rpc.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts';
import type {
  LiveEndpoint,
  LiveSession,
  LiveTunnel,
  LiveView,
  Revocation,
  SessionCommand,
} from '../endpoints/live-view.ts';
import { EndOfSession } from '../endpoints/session-end.ts';
import { timestamp } from '../store/store.ts';
import { LabeledTunnel } from './agent-listener.ts';
import type { AgentSession } from './agent-session.ts';
import type { Listener } from './session-listeners.ts';
import type { SessionServer } from './session-server.ts';

/** Shows the agents' sessions to the management API, and revokes permissions in them. */
export class LiveAgents implements LiveView {
  constructor(
    private readonly server: SessionServer,
    private readonly registry: EndpointRegistry,
    private readonly isRefused: (remoteAddress: string) => boolean,
    private readonly log: Log,
  ) {}

  sessions(): readonly LiveSession[] {
    // Several connections of one agent share an id and count as one session.
    const byId = new Map([...this.server.sessions].map((session) => [session.id, session]));
    return [...byId.values()].map((session) => ({
      id: session.id,
      agentVersion: session.agent.program,
      credentialId: session.credential.id,
      ip: session.address,
      os: session.agent.os,
      startedAt: timestamp(session.startedAt.getTime()),
      transport: 'ngrok/2',
      metadata: session.agent.metadata,
      ...(session.budgetPercent !== null && { budgetPercent: session.budgetPercent }),
    }));
  }

  tunnels(): readonly LiveTunnel[] {
    return this.#online().map(([session, listener]) => ({
      id: listener.tunnelId,
      sessionId: session.id,
      startedAt: timestamp(listener.boundAt.getTime()),
      metadata: listener.metadata,
      forwardsTo: listener.forwardsTo,
      ...(listener instanceof LabeledTunnel
        ? { endpointId: null, publicUrl: null, proto: null, labels: listener.labels }
        : { endpointId: listener.publicId, publicUrl: listener.url, proto: listener.protocol, labels: null }),
    }));
  }

  endpoints(): readonly LiveEndpoint[] {
    return this.#online().flatMap(([, listener]) => (listener instanceof LabeledTunnel ? [] : [listener.view()]));
  }

  command(sessionId: string, command: SessionCommand): boolean {
    const sessions = [...this.server.sessions.withId(sessionId)];
    const [session] = sessions;
    if (!session) return false;
    if (command === 'disconnect') {
      for (const each of sessions) each.end(new EndOfSession('gateway', 'disconnected by an operator'));
      return true;
    }
    const { commands } = session;
    const sent = {
      stop: () => commands.stop(),
      restart: () => commands.restart(),
      update: () => commands.update(),
    };
    sent[command]().catch((error: unknown) => {
      this.log.warn({ session: sessionId, command, reason: messageOf(error) }, 'agent command failed');
      // Most agents cannot restart on request; without a session, each connects again.
      if (command === 'restart')
        for (const each of sessions) each.end(new EndOfSession('gateway', 'restart requested'));
    });
    return true;
  }

  async revoke({ credentialIds = [], narrowedId, domain }: Revocation): Promise<void> {
    const { sessions } = this.server;
    for (const id of credentialIds) {
      for (const session of [...sessions.ofCredential(id)])
        this.#end(session, 'the authtoken was revoked', 'ERR_NGROK_300');
    }
    if (narrowedId !== undefined) for (const session of [...sessions.ofCredential(narrowedId)]) stopForbidden(session);
    // Authtokens say nothing about other sessions.
    if (domain === undefined && (credentialIds.length > 0 || narrowedId !== undefined)) return;
    for (const session of [...sessions]) {
      if (this.isRefused(session.address))
        this.#end(session, 'an IP restriction no longer allows agents at this address', 'ERR_NGROK_115');
      else if (domain !== undefined) stopForbidden(session);
    }
  }

  /** Takes an endpoint offline, and tells its agent why. */
  stopEndpoint(id: string, message: string, code: string): void {
    const [found] = this.#online().filter(([, { publicId }]) => publicId === id);
    if (!found) return;
    const [session, listener] = found;
    session.stopListener(listener, message, code);
    this.log.warn({ session: session.id, id, reason: message }, 'endpoint stopped');
  }

  #end(session: AgentSession, reason: string, code: string): void {
    for (const listener of [...session.listeners]) session.stopListener(listener, reason, code);
    session.end(new EndOfSession('revoked', reason));
  }

  #online(): [AgentSession, Listener][] {
    const online = new Set<unknown>([...this.registry.list(), ...this.registry.labeled()]);
    return [...this.server.sessions].flatMap((session) =>
      [...session.listeners]
        .filter((each) => online.has(each))
        .map((each): [AgentSession, Listener] => [session, each]),
    );
  }
}

/** Stops listeners that the session's credential no longer allows, or whose domain is no longer reserved. */
function stopForbidden(session: AgentSession): void {
  for (const listener of [...session.listeners]) {
    try {
      session.credential.authorize(listener.binding);
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      session.stopListener(listener, error.message, error.code);
    }
  }
}
