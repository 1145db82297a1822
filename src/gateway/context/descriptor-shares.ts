/** Limits that keep a gateway within its file descriptors. Beyond them Linux accepts connections that nobody can serve. */
export interface DescriptorShares {
  /** Client connections on each of the two public ports. */
  readonly connections: number;
  /** Connections on the TLS port that have not sent their ClientHello yet. */
  readonly hellos: number;
  readonly sessions: number;
  /** Connections on the session port that have not authenticated, and as many that are handshaking. */
  readonly unauthenticated: number;
  /** Open tcp ports, and connections on all of them together. */
  readonly tcpPorts: number;
  readonly tcpConnections: number;
}

/** Database, log, listeners, certificate orders, and some to spare. */
const RESERVED = 56;

/** The other limits are no higher than this, however many descriptors there are. */
export interface WantedDescriptors {
  readonly connections: number;
  readonly hellos: number;
  readonly unauthenticated: number;
}

/** Second links of all sessions, which they have beside bulk transfers, for each session. */
export const SECOND_LINKS = 1 / 4;
/** Descriptors of an agent's session. */
const OF_SESSION = 1 + SECOND_LINKS;

/**
 * Divides all file descriptors of the process. With the usual half a million, the settings' limits are below every share. What
 * clients can never use is for sessions.
 */
export function descriptorShares(limit: number, wanted: WantedDescriptors): DescriptorShares {
  const free = limit - RESERVED;
  const part = (divisor: number) => Math.max(2, Math.floor(free / divisor));
  const shares = {
    connections: part(4),
    hellos: part(8),
    unauthenticated: part(25),
    tcpPorts: part(32),
    tcpConnections: part(8),
  };
  const ofClients =
    2 * Math.min(wanted.connections, shares.connections) +
    Math.min(wanted.hellos, shares.hellos) +
    2 * Math.min(wanted.unauthenticated, shares.unauthenticated) +
    shares.tcpPorts +
    shares.tcpConnections;
  const sessions = Number.isFinite(free) ? Math.floor((free - ofClients) / OF_SESSION) : free;
  return { ...shares, sessions: Math.max(2, sessions) };
}
