import type { RequestDetail } from '../../../agent/api/inspection/inspection-reports.ts';
import { call } from '../../ui/api.ts';
import { goTo } from '../../ui/router.ts';
import type { TrafficModel } from './traffic-model.ts';

/** What differs from the captured request. */
export interface ReplayChanges {
  method?: string;
  path?: string;
  headers?: { name: string; value: string }[];
  body?: { text: string } | null;
}

/**
 * Sends a captured request again, and shows the new one.
 *
 * @throws {ApiProblem}
 */
export async function replay(
  model: TrafficModel,
  tunnelId: string,
  requestId: string,
  changes: ReplayChanges,
): Promise<void> {
  const path = `${model.path}/requests/${encodeURIComponent(requestId)}/replay`;
  const repeated = await call<RequestDetail>('POST', path, changes);
  model.add(repeated);
  goTo('tunnels', tunnelId, 'traffic', repeated.id);
}
