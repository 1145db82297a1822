/** The argument of an agent process, as JSON. */
export interface SoakAgents {
  address: string;
  caFile: string;
  authtoken: string;
  /** The gateway's public HTTP port. */
  httpPort: number;
  upstreamPort: number;
  /** Number of its first agent. */
  first: number;
  count: number;
  /** Whether its endpoints receive requests. */
  traffic: boolean;
  /** Mean time until an agent reconnects, in milliseconds. */
  stayMs: number;
}

/** The output at its end. */
export interface SoakTotals {
  requests: number;
  /** One line for each request to an online endpoint without the expected response. */
  lost: string[];
  reconnects: number;
}

export const ENDPOINTS_PER_AGENT = 4;
