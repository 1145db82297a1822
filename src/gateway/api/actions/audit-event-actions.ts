import { type AuditEvent, auditEvents } from '../../../management/resources/audit-event.ts';
import type { AuditFilter, AuditRow } from '../../store/audit-log.ts';
import type { ApiContext, Links } from '../api-context.ts';
import { found } from '../operation-router.ts';

/** Reads who has changed what. */
export function auditEventActions({ store: { auditLog }, links }: Pick<ApiContext, 'store' | 'links'>) {
  return {
    get: (id: string) => showEvent(links, found(auditLog.get(id), auditEvents)),
    list: (before: string | null, limit: number, filter: AuditFilter = {}) =>
      auditLog.find(filter, { before }, limit).map((row) => showEvent(links, row)),
  };
}

function showEvent(links: Links, row: AuditRow): AuditEvent {
  return { ...row, uri: links.of(auditEvents, row.id) };
}
