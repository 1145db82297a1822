/** What of the gateway's live side the API shows and steers; the agent sessions implement it. */
export interface LiveView {
  sessions(): readonly LiveSession[];
  tunnels(): readonly LiveTunnel[];
  endpoints(): readonly LiveEndpoint[];
  /** Tells the agent to restart, stop or update; false when there is no such session. */
  command(sessionId: string, command: SessionCommand): boolean;
  /** Ends at once what is online by the right that was taken away. */
  revoke(revoked: Revocation): void;
}

export type SessionCommand = 'restart' | 'stop' | 'update';

/** A right that agents no longer have. */
export interface Revocation {
  /** Sessions started with these authtokens end. */
  credentialIds?: readonly string[];
  /** Endpoints end whose name only this reservation covered; perhaps a wildcard. */
  domain?: string;
  /** Endpoints end that this authtoken's rules, which were changed, no longer allow. */
  narrowedId?: string;
}

/** One authenticated connection of an agent. */
export interface LiveSession {
  /** `ts_…` */
  id: string;
  agentVersion: string;
  credentialId: string | null;
  ip: string;
  os: string;
  /** RFC 3339, UTC, whole seconds; so are all times here. */
  startedAt: string;
  transport: string;
  metadata: string;
}

/** What an agent has bound. */
export interface LiveTunnel {
  /** `tn_…`, with the KSUID of its endpoint. */
  id: string;
  sessionId: string;
  /** Null for labelled tunnels. */
  endpointId: string | null;
  publicUrl: string | null;
  proto: string | null;
  labels: Readonly<Record<string, string>> | null;
  startedAt: string;
  metadata: string;
  forwardsTo: string;
}

/** A public URL that is online. */
export interface LiveEndpoint {
  /** `ep_…` */
  id: string;
  type: 'ephemeral' | 'edge';
  proto: string;
  /** Lower case. */
  host: string;
  port: number;
  url: string;
  createdAt: string;
  updatedAt: string;
  metadata: string;
  description: string;
  name: string;
  tunnelId: string | null;
  sessionId: string | null;
  edgeId: string | null;
  /** Bot user that owns the authtoken. */
  ownerId: string | null;
  upstreamUrl: string | null;
  poolingEnabled: boolean;
  /** Whether only the policies of other endpoints lead there. */
  internal: boolean;
}

/** A live side on which nothing is ever online. */
export const nothingOnline: LiveView = {
  sessions: () => [],
  tunnels: () => [],
  endpoints: () => [],
  command: () => false,
  revoke: () => {},
};
