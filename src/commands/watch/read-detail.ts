import type { MessageReport, RequestDetail } from '../../agent/api/inspection/inspection-reports.ts';
import { callAgent } from '../../agent/api-client.ts';
import type { WatchedTunnel } from './watched-tunnel.ts';

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
