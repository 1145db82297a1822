import { isDeepStrictEqual } from 'node:util';
import { ApiError } from '../../../lib/errors.ts';
import { auditEvents } from '../../../management/resources/audit-event.ts';
import type { StoredPolicy } from '../../../traffic-policy/policy-difference.ts';
import type { AuditRow } from '../../store/audit-log.ts';
import type { EdgeModules } from '../../store/tls-edges.ts';
import type { ApiContext } from '../api-context.ts';
import { type ApiCaller, found } from '../operation-router.ts';
import { putEndpointPolicy } from './endpoint-actions.ts';
import { putEdgePolicy } from './tls-edge-actions.ts';

/**
 * Puts the traffic policy of an object back to what it was before a change, which is another change.
 *
 * @returns the event of that change
 * @throws {ApiError} when the event has changed no policy, the object is gone, or its policy has been changed since
 */
export async function undoPolicyChange(context: ApiContext, id: string, caller: ApiCaller): Promise<AuditRow> {
  const { auditLog } = context.store;
  const event = found(auditLog.get(id), auditEvents);
  const { object_id: objectId } = event;
  const change = auditLog.policyChange(id);
  if (change === null) throw nothingToUndo(id, 'it changed no traffic policy, or its texts can no longer be read');
  if (event.before === null) throw nothingToUndo(id, 'it created the object; delete the object instead');
  if (event.after === null) throw isGone(event);
  const check = (current: StoredPolicy | null) => {
    const later = auditLog.latestPolicyChange(objectId);
    if (later?.id !== id || !isDeepStrictEqual(current, change.after)) throw changedSince(event, later);
  };
  const put = event.type.startsWith('tls_edge_')
    ? putEdgePolicy(context, objectId, change.before as EdgeModules['traffic_policy'], check, caller)
    : putEndpointPolicy(context, objectId, change.before as string, check, caller);
  const undone = await put;
  if (undone === null) throw isGone(event);
  return undone;
}

function nothingToUndo(id: string, why: string): ApiError {
  return new ApiError(400, 'ERR_GATEWAY_NOTHING_TO_UNDO', `${id} cannot be undone: ${why}`);
}

function isGone({ id, object_id: objectId }: AuditRow): ApiError {
  const text = `${id} cannot be undone: ${objectId} was deleted; create it again with the policy that you want`;
  return new ApiError(400, 'ERR_GATEWAY_OBJECT_GONE', text);
}

function changedSince({ id, object_id: objectId }: AuditRow, latest: AuditRow | null): ApiError {
  const later = latest === null || latest.id === id ? null : latest.id;
  const since =
    later === null
      ? 'since; change the policy itself'
      : `since by ${later}; undo that one first, or change the policy itself`;
  const text = `${id} cannot be undone: the policy of ${objectId} has been changed ${since}`;
  return new ApiError(400, 'ERR_GATEWAY_POLICY_CHANGED_SINCE', text, {
    details: later === null ? {} : { later_event: later },
  });
}
