import { isDeepStrictEqual } from 'node:util';
import { eventJson } from '../../gateway/events/event-json.ts';
import type { AuditRow } from '../../gateway/store/audit-log.ts';
import type { Store } from '../../gateway/store/store.ts';
import { OperatorError } from '../../lib/errors.ts';
import { printable } from '../../lib/terminal-text.ts';
import { UNITS } from '../command-line.ts';
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

/**
 * Prints who has changed what, oldest first.
 *
 * @throws {OperatorError} exit code 2 when `since` is no time
 */
export function showLog({ auditLog }: Store, options: LogOptions): void {
  const { since, type, object, by, json } = options;
  const pages = auditLog.pages({
    since: since === undefined ? undefined : startOf(since),
    type,
    object_id: object,
    by,
  });
  if (json) return void print(jsonText([...pages].flat()));
  let count = 0;
  for (const page of pages) {
    for (const row of page) print(options.export ? eventJson(row) : printable(lineOf(row)));
    count += page.length;
  }
  if (count === 0) note('No changes.');
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
  const { domain, name, host } = after ?? before ?? {};
  const named = [domain, name, host].find((text) => typeof text === 'string' && text !== '');
  const what = `${type.replace(/\.v0$/, '')} ${object_id}${named === undefined ? '' : ` ${named}`}`;
  const changed = Object.keys(before && after ? after : {}).filter(
    (member) => member !== 'updated_at' && !isDeepStrictEqual(before?.[member], after?.[member]),
  );
  return `${created_at}  ${who}  ${what}${changed.length > 0 ? `: ${changed.join(', ')}` : ''}`;
}
