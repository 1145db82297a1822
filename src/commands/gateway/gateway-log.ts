import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '../../gateway/events/event-message.ts';
import type { AuditLog, AuditRow } from '../../gateway/store/audit-log.ts';
import type { Store } from '../../gateway/store/store.ts';
import { OperatorError } from '../../lib/errors.ts';
import { printable } from '../../lib/terminal-text.ts';
import { jsonText, note, print } from '../output.ts';

export interface LogOptions {
  since?: string;
  type?: string;
  object?: string;
  by?: string;
  json?: boolean;
  /** Lines as destinations of events get them. */
  export?: boolean;
}

const PAGE = 500;
const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/**
 * Prints who has changed what, oldest first.
 *
 * @throws {OperatorError} exit code 2 when `since` is no time
 */
export function showLog({ auditLog }: Store, options: LogOptions): void {
  const wanted = wantedRows(auditLog, options);
  if (options.json) return void print(jsonText([...wanted]));
  let count = 0;
  for (const row of wanted) {
    count += 1;
    print(options.export ? messageOf(row) : printable(lineOf(row)));
  }
  if (count === 0) note('No changes.');
}

/** Page by page: years of changes need not fit into memory. */
function* wantedRows(auditLog: AuditLog, { since, type, object, by }: LogOptions): Generator<AuditRow> {
  const filter = { since: since === undefined ? undefined : startOf(since), type, object_id: object, by };
  let page: AuditRow[];
  let after = '';
  do {
    page = auditLog.find(filter, { after }, PAGE);
    yield* page;
    after = page.at(-1)?.id ?? '';
  } while (page.length === PAGE);
}

function startOf(since: string): string {
  const [, count, unit = ''] = /^(\d{1,6})([mhd])$/.exec(since) ?? [];
  const at = count === undefined ? Date.parse(since) : Date.now() - Number(count) * (UNITS[unit] ?? 0);
  if (Number.isNaN(at)) {
    throw new OperatorError(`--since: "${since}" is neither a duration such as 24h nor a time such as 2026-11-26`, 2);
  }
  return new Date(at).toISOString();
}

function lineOf({ created_at, by, from_address, type, object_id, before, after }: AuditRow): string {
  const who = from_address === null ? by : `${by} (${from_address})`;
  const name = after?.domain ?? after?.name ?? before?.domain ?? before?.name;
  const what = `${type.replace(/\.v0$/, '')} ${object_id}${typeof name === 'string' ? ` ${name}` : ''}`;
  const changed = Object.keys(before && after ? after : {}).filter(
    (member) => member !== 'updated_at' && !isDeepStrictEqual(before?.[member], after?.[member]),
  );
  return `${created_at}  ${who}  ${what}${changed.length > 0 ? `: ${changed.join(', ')}` : ''}`;
}
