/** What a process of agents is told, as JSON. */
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
  /** Whether its endpoints get requests. */
  traffic: boolean;
  /** Mean time, in milliseconds, that an agent stays before it reconnects. */
  stayMs: number;
}

/** What it has to say when it ends. */
export interface SoakTally {
  requests: number;
  /** One line for each request to a live endpoint that was not answered as it should be. */
  lost: string[];
  reconnects: number;
}

export const ENDPOINTS_PER_AGENT = 4;
