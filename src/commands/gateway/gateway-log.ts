import { isDeepStrictEqual } from 'node:util';
import { actorDescriptions, asListed, eventJson, policyDifferenceOf } from '../../gateway/events/shown-events.ts';
import type { Row, Store } from '../../gateway/offline/command-store.ts';
import { OperatorError } from '../../lib/errors.ts';
import { printableJson } from '../../lib/json-text.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { printable } from '../../lib/terminal-text.ts';
import type { AuditEvent } from '../../management/resources/audit-event.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { timeOf } from '../command-line.ts';
import { jsonText, note, print } from '../output.ts';
import { withGateway } from './running-gateway.ts';

export interface LogOptions {
  search?: string;
  since?: string;
  until?: string;
  type?: string;
  object?: string;
  by?: string;
  json?: boolean;
  /** Lines as destinations of events get them. */
  export?: boolean;
}

type ChangeDetails = Pick<AuditEvent, 'before' | 'after' | 'policy_difference'>;

/**
 * Prints who has changed what, oldest first.
 *
 * @throws {OperatorError} exit code 2 when `since` or `until` is no time
 */
export function showLog(store: Store, options: LogOptions): void {
  const { auditLog } = store;
  const { search, type, object, by, json } = options;
  const filter: Parameters<typeof auditLog.pages>[0] = {
    since: timeOf('since', options.since),
    until: timeOf('until', options.until),
    type,
    object_id: object,
    by,
    search: search?.toLowerCase(),
  };
  const pages = auditLog.pages(options.export ? filter : asListed(filter));
  if (json) return void print(jsonText([...pages].flat()));
  const describe = actorDescriptions(store);
  let count = 0;
  for (const page of pages) {
    for (const row of page) print(options.export ? eventJson(row) : printable(lineOf(row, describe(row.by))));
    count += page.length;
  }
  if (count === 0) note('No changes.');
}

/** @throws {OperatorError} exit code 4 when there is no change with the id */
export function showChange(store: Store, id: string, { json }: { json?: boolean }): void {
  const row = store.auditLog.get(id);
  if (row === null) throw unknownChange();
  const event = { ...row, ...policyDifferenceOf(store.auditLog, row) };
  if (json) print(jsonText(event));
  else print(`${printable(lineOf(row, actorDescriptions(store)(row.by)))}\n${differenceOf(event)}`);
}

/**
 * Undoes a change of a traffic policy, and prints what that changes.
 *
 * @throws {OperatorError} exit code 3 when the gateway does not run, 4 when there is no such change, 1 when it refuses
 */
export async function undoChange(
  settings: GatewayServerSettings,
  id: string,
  { json }: { json?: boolean },
): Promise<void> {
  if (!/^evt_\w+$/.test(id)) throw unknownChange();
  const event = await withGateway(settings, (client) => client.auditEvents.undo(id));
  print(json ? jsonText(event) : `${id} undone by ${event.id}\n${differenceOf(event)}`);
}

function unknownChange(): OperatorError {
  return new OperatorError(`no change has this id: ${ownCommand('gateway log --json')} lists them`, 4);
}

/** Members that have changed, and how; safe for a terminal. */
function differenceOf({ before, after, policy_difference: policy }: ChangeDetails): string {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  const sides = [
    { sign: '-', values: before },
    { sign: '+', values: after },
  ];
  const members = [...names].flatMap((name) => {
    const isShown = !(name === 'traffic_policy' && policy) && !isDeepStrictEqual(before?.[name], after?.[name]);
    const present = sides.filter(({ values }) => isShown && (values?.[name] ?? null) !== null);
    return present.map(({ sign, values }) => `${sign}${name}: ${printableJson(JSON.stringify(values?.[name]))}`);
  });
  return [...members.map(printable), ...(policy ? [policy] : [])].join('\n');
}

function lineOf(row: Row<'auditLog'>, description: string | null): string {
  const { created_at, by, from_address, type, object_id, before, after } = row;
  const actor = description === null ? by : `${by} "${description}"`;
  const who = from_address === null ? actor : `${actor} (${from_address})`;
  const { domain, name, host, command } = after ?? before ?? {};
  const named = [domain, name, host, command].find((text) => typeof text === 'string' && text !== '');
  const what = `${type.replace(/\.v0$/, '')} ${object_id}${named === undefined ? '' : ` ${named}`}`;
  const changed = Object.keys(before && after ? after : {}).filter(
    (member) => member !== 'updated_at' && !isDeepStrictEqual(before?.[member], after?.[member]),
  );
  const id = changed.includes('traffic_policy') ? `  ${row.id}` : '';
  return `${created_at}  ${who}  ${what}${changed.length > 0 ? `: ${changed.join(', ')}` : ''}${id}`;
}
