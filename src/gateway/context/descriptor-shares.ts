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

/** Divides all file descriptors of the process. With the usual half a million, the settings' limits are below every share. */
export function descriptorShares(limit: number): DescriptorShares {
  const part = (divisor: number) => Math.max(2, Math.floor((limit - RESERVED) / divisor));
  return {
    connections: part(4),
    hellos: part(8),
    sessions: part(8),
    unauthenticated: part(25),
    tcpPorts: part(32),
    tcpConnections: part(8),
  };
}
