import type { AuditRow } from '../../../src/gateway/store/audit-log.ts';

/** An entry of the audit log; its id is greater than those with smaller numbers, up to 9. */
export function auditRow(number: number, description = 'a'): AuditRow {
  return {
    id: `evt_${number}`,
    created_at: '2026-11-26T20:00:00Z',
    type: 'ip_policy_created.v0',
    object_id: `ipp_${number}`,
    by: 'ak_1',
    from_address: '127.0.0.1',
    part_of: null,
    before: null,
    after: { id: `ipp_${number}`, description },
  };
}
