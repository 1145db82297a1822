import { policyDifference } from '../../traffic-policy/policy-difference.ts';
import type { AuditLog, AuditRow } from '../store/audit-log.ts';

/** What an event of the audit log has changed in a traffic policy, with secrets masked; left out: nothing, or it cannot be read. */
export function policyDifferenceOf(
  auditLog: Pick<AuditLog, 'policyChange'>,
  { id }: Pick<AuditRow, 'id'>,
): { policy_difference?: string } {
  const change = auditLog.policyChange(id);
  return change === null ? {} : { policy_difference: policyDifference(change.before, change.after) };
}
