import type { MessageReport, RequestDetail } from '../../agent/api/inspection/inspection-reports.ts';
import { callAgent } from '../../agent/api-client.ts';
import type { Settings } from '../../settings/agent-settings.ts';

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

export interface WatchedTunnel {
  settings: Settings;
  path: string;
  url: string;
  /** The query that shows secrets, if they are asked for. */
  query: '' | '?reveal=true';
}

/** A captured request with its messages, if it has some. */
export async function readDetail(
  { settings, path, query }: WatchedTunnel,
  id: string,
  known?: RequestDetail,
): Promise<{ detail: RequestDetail; messages: MessageReport[] }> {
  const one = `${path}/requests/${id}`;
  const detail = known ?? (await callAgent<RequestDetail>(settings, 'GET', one + query));
  const messages =
    detail.messages > 0 ? await callAgent<MessageReport[]>(settings, 'GET', `${one}/messages${query}`) : [];
  return { detail, messages };
}
