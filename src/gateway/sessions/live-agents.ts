import { RpcError } from '../../agent-protocol/rpc.ts';
import { messageOf } from '../../lib/errors.ts';
import { ksuidOf } from '../../lib/ids.ts';
import type { Log } from '../../lib/log/log.ts';
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts';
import type {
  LiveCounts,
  LiveEndpoint,
  LiveFinder,
  LiveSession,
  LiveTunnel,
  LiveView,
  Revocation,
  SessionCommand,
} from '../endpoints/live-view.ts';
import { EndOfSession } from '../endpoints/session-end.ts';
import { merged } from '../endpoints/stored-endpoints.ts';
import { timestamp } from '../store/store.ts';
import { BoundEndpoint, LabeledTunnel } from './agent-listener.ts';
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
    // Several connections of one agent share an id and count as one session, which leaves with the last of them.
    const byId = new Map<string, AgentSession>();
    for (const session of this.server.sessions)
      if (!session.isLeaving || !byId.has(session.id)) byId.set(session.id, session);
    return [...byId.values()].map(sessionView);
  }

  tunnels(): readonly LiveTunnel[] {
    const { registry } = this;
    return [...registry.list(), ...registry.labeled()].flatMap(tunnelView);
  }

  endpoints(): readonly LiveEndpoint[] {
    return this.registry.list().flatMap(endpointView);
  }

  counts(): LiveCounts {
    const { online, labeledOnline } = this.registry;
    return { sessions: this.server.sessions.ids, endpoints: online.countsOfAgents, labelled: labeledOnline.size };
  }

  get find(): LiveFinder {
    const { sessions } = this.server;
    const { online, labeledOnline } = this.registry;
    const ofSession = (id: string) => [...sessions.withId(id)].flatMap(({ listeners }) => [...listeners]);
    const isOnline = (listener: Listener) =>
      (listener instanceof LabeledTunnel ? labeledOnline : online).withId(listener.publicId) === listener;
    function* sessionsBelow(id: string | null) {
      for (const session of sessions.below(id)) yield sessionView(session);
    }
    function* sessionsWithBudget() {
      for (const session of sessions.withBudget) yield sessionView(session);
    }
    function* endpointsBelow(id: string | null) {
      for (const endpoint of online.below(id)) yield* endpointView(endpoint);
    }
    const ofTunnel = (id: string) => labeledOnline.withId(id) ?? online.withId(`ep_${ksuidOf(id)}`);
    function* tunnelsOfEndpoints(id: string | null) {
      for (const each of online.below(id && `ep_${ksuidOf(id)}`)) yield* tunnelView(each);
    }
    function* labelled(id: string | null) {
      for (const each of labeledOnline.below(id)) yield* tunnelView(each);
    }
    return {
      session: (id) => [...sessions.withId(id)].slice(-1).map(sessionView)[0] ?? null,
      sessionsOf: (id) => lastOfEach([...sessions.ofCredential(id)]).map(sessionView),
      sessionsWithBudget,
      sessionsBelow,
      tunnel: (id) => tunnelView(ofTunnel(id))[0] ?? null,
      tunnelsOf: (id) => ofSession(id).filter(isOnline).flatMap(tunnelView),
      tunnelsWith: (labels) => labeledOnline.matching(labels).flatMap(tunnelView),
      tunnelsBelow: (id) => merged([labelled(id), tunnelsOfEndpoints(id)]),
      endpoint: (id) => endpointView(online.withId(id))[0] ?? null,
      endpointsOf: (id) => [...online.ofCredential(id)].flatMap(endpointView),
      endpointsAt: (place) => this.registry.atPlace(place).flatMap(endpointView),
      endpointsWithUrl: (url) => [...online.withUrl(url)].flatMap(endpointView),
      endpointsWithPeople: () => [...online.withPeople].flatMap(endpointView),
      endpointsBelow,
    };
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

  async revoke({ credentialIds = [], narrowedId, domain, addresses }: Revocation): Promise<void> {
    const { sessions } = this.server;
    for (const id of credentialIds) {
      for (const session of [...sessions.ofCredential(id)])
        this.#end(session, 'the authtoken was revoked', 'ERR_NGROK_300');
    }
    if (narrowedId !== undefined)
      for (const session of [...sessions.ofCredential(narrowedId)]) stopForbidden(session.listeners);
    if (domain !== undefined) {
      const { online, retired } = this.registry;
      // Endpoints that are offline already may carry connections.
      const covered = domain === '' ? online.all : online.covered(domain);
      stopForbidden([...covered, ...retired].filter((each) => each instanceof BoundEndpoint));
    }
    if (!addresses) return;
    for (const session of [...sessions])
      if (this.isRefused(session.address))
        this.#end(session, 'an IP restriction no longer allows agents at this address', 'ERR_NGROK_115');
  }

  /** Takes an endpoint offline, and tells its agent why. */
  stopEndpoint(id: string, message: string, code: string): void {
    const found = this.registry.online.withId(id) ?? this.registry.labeledOnline.withId(id);
    if (!isOfAgent(found)) return;
    found.owner.stopListener(found, message, code);
    this.log.warn({ session: found.owner.id, id, reason: message }, 'endpoint stopped');
  }

  #end(session: AgentSession, reason: string, code: string): void {
    for (const listener of [...session.listeners]) session.stopListener(listener, reason, code);
    session.end(new EndOfSession('revoked', reason));
  }
}

const isOfAgent = (each: unknown): each is Listener => each instanceof BoundEndpoint || each instanceof LabeledTunnel;

/** Connections of one agent share an id: the newest of each. */
function lastOfEach(sessions: readonly AgentSession[]): AgentSession[] {
  return [...new Map(sessions.map((session) => [session.id, session])).values()];
}

function sessionView(session: AgentSession): LiveSession {
  return {
    id: session.id,
    agentVersion: session.agent.program,
    credentialId: session.credential.id,
    ip: session.address,
    os: session.agent.os,
    startedAt: timestamp(session.startedAt.getTime()),
    transport: 'ngrok/2',
    metadata: session.agent.metadata,
    ...(session.budgetPercent !== null && { budgetPercent: session.budgetPercent }),
    ...(session.isLeaving && { isLeaving: true }),
  };
}

function tunnelView(listener: unknown): LiveTunnel[] {
  if (!isOfAgent(listener)) return [];
  const common = {
    id: listener.tunnelId,
    sessionId: listener.owner.id,
    startedAt: timestamp(listener.boundAt.getTime()),
    metadata: listener.metadata,
    forwardsTo: listener.forwardsTo,
  };
  if (listener instanceof LabeledTunnel)
    return [{ ...common, endpointId: null, publicUrl: null, proto: null, labels: listener.labels }];
  return [
    { ...common, endpointId: listener.publicId, publicUrl: listener.url, proto: listener.protocol, labels: null },
  ];
}

const endpointView = (each: unknown): LiveEndpoint[] => (each instanceof BoundEndpoint ? [each.view()] : []);

/** Stops listeners that their credentials no longer allow, or whose domain is no longer reserved. */
function stopForbidden(listeners: Iterable<Listener>): void {
  for (const listener of [...listeners]) {
    try {
      listener.owner.credential.authorize(listener.binding);
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      listener.owner.stopListener(listener, error.message, error.code);
    }
  }
}
