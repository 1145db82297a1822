import type { Settings } from '../../settings/agent-settings.ts';

/** Options of `device-agent watch`. */
export interface WatchOptions {
  method?: string;
  path?: string;
  status?: string;
  minDuration?: string;
  reveal?: boolean;
  json?: boolean;
  body?: boolean;
  show?: string;
  curl?: string;
  replay?: string;
  har?: string;
}

/** One tunnel in the agent's API. */
export interface WatchedTunnel {
  settings: Settings;
  /** Its path. */
  path: string;
  url: string;
  /** The query that shows secrets, if they are asked for. */
  query: '' | '?reveal=true';
}
