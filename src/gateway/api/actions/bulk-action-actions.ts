import type { z } from 'zod';
import type { OPERATIONS } from '../../../management/operations.ts';
import {
  type BulkAction,
  type BulkActionCreate,
  type BulkCount,
  type BulkCounted,
  bulkActions,
  MAX_BULK,
} from '../../../management/resources/bulk-action.ts';
import { WRONG_VALUE } from '../../../management/resources/refusal.ts';
import { commandOf, endBulkAction, labelsAfter } from '../../devices/bulk-runner.ts';
import type { BulkActionRow } from '../../store/bulk-actions.ts';
import type { DeviceRow } from '../../store/devices.ts';
import type { ApiContext } from '../api-context.ts';
import { type ActionsOf, found } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { membersOf, shownPart } from './stored-actions.ts';

/** What an answer names of the devices that were counted. */
const MAX_NAMES = 10;
/** Bulk actions that have not ended: each waits for those before it. */
const MAX_RUNNING = 20;

type Choice = z.output<typeof BulkCount>;

/** Begins what the {@link BulkRunner} does, counts before, and shows how far it is. */
export function bulkActionActions(context: ApiContext): { bulkActions: ActionsOf<typeof OPERATIONS.bulkActions> } {
  const { store, wakeBulkActions } = context;
  const { database, bulkActions: rows, ids, now } = store;
  const stored = (id: string) => found(rows.get(id), bulkActions);
  const shown = (row: BulkActionRow, isWhole: boolean): BulkAction => ({
    ...membersOf(row, bulkActions.answer),
    uri: context.links.of(bulkActions, row.id),
    ...rows.progress(row),
    failures: isWhole ? rows.failures(row.id) : [],
  });
  return {
    bulkActions: {
      get: (id) => shown(stored(id), true),
      list: (before, limit, filters) => shownPart(rows.chosen(before, limit, filters), (row) => shown(row, false)),
      count: async (choice) => counted(context, choice),
      async create({ expected_devices: expected, ...choice }, caller) {
        const id = await database.write(() => {
          checkLabels(choice);
          const devices = chosenDevices(context, choice);
          if (expected !== undefined && devices.length !== expected)
            throw conflict(`${expected} devices were expected, and ${devices.length} are chosen now: count again`);
          if (devices.length === 0) throw conflict('no device is chosen');
          if (rows.count("state = 'running'", []) >= MAX_RUNNING)
            throw conflict(`${MAX_RUNNING} bulk actions have not ended: wait, or cancel one`);
          const row: BulkActionRow = {
            ...{ id: ids.next('blk'), created_at: now(), state: 'running', devices: devices.length },
            ...{ action: choice.action, labels: choice.labels ?? null, remove_labels: choice.remove_labels ?? null },
            ...{ filter: choice.filter ? textsOf(choice.filter) : null, by: caller.by, from_address: caller.from },
            ...{ finished_at: null, end_reason: null },
          };
          rows.begin(
            row,
            devices.map(({ id: device_id, name }) => ({ device_id, name })),
          );
          return row.id;
        }, caller);
        wakeBulkActions?.();
        return shown(stored(id), true);
      },
      cancel: (id, _body, caller) =>
        database.write(() => {
          stored(id);
          endBulkAction(store, id, 'cancelled', `cancelled by ${caller.by}`);
          return shown(stored(id), true);
        }, caller),
    },
  };
}

/** The devices that somebody chooses, oldest first. This alone decides which they are. @throws {ApiError} */
function chosenDevices(
  { store, live }: ApiContext,
  choice: Omit<z.output<typeof BulkActionCreate>, 'expected_devices'>,
): DeviceRow[] {
  const { device_ids, filter } = choice;
  if ((device_ids === undefined) === (filter === undefined))
    throw refuse(400, WRONG_VALUE, 'device_ids or filter: send one of the two');
  const { devices } = store;
  if (device_ids !== undefined)
    return [...new Set(device_ids)].map((id) => {
      const row = devices.get(id);
      if (row === null) throw refuse(400, WRONG_VALUE, `device_ids: no device has the id ${id}`);
      return row;
    });
  const online = live.sessions().flatMap(({ credentialId }) => credentialId ?? []);
  const chosen = devices.all(filter ?? {}, online, MAX_BULK + 1);
  if (chosen.length > MAX_BULK) throw conflict(`more than ${MAX_BULK} devices are chosen: choose fewer`);
  return chosen;
}

function checkLabels({ action, labels, remove_labels: removed }: Choice): void {
  const changesLabels = Object.keys(labels ?? {}).length + (removed?.length ?? 0) > 0;
  if (changesLabels !== (action === 'label'))
    throw refuse(
      400,
      WRONG_VALUE,
      action === 'label' ? 'labels: send some, or remove_labels' : `labels: ${action} takes none`,
    );
}

function counted(context: ApiContext, choice: Choice): BulkCounted {
  const devices = chosenDevices(context, choice);
  const online = new Set(context.live.sessions().map(({ credentialId }) => credentialId));
  const isOnline = ({ credential_id }: DeviceRow) => credential_id !== null && online.has(credential_id);
  const { labels = null, remove_labels = null } = choice;
  const isUnfit = (device: DeviceRow): boolean => {
    if (commandOf(choice) !== null) return !isOnline(device);
    if (choice.action === 'label') return labelsAfter({ labels, remove_labels }, device) === null;
    if (choice.action === 'approve') return device.status === 'revoked';
    return choice.action === 'rotate' && device.status !== 'enrolled';
  };
  return {
    devices: devices.length,
    online: devices.filter(isOnline).length,
    unfit: devices.filter(isUnfit).length,
    names: devices.slice(0, MAX_NAMES).map(({ name }) => name),
  };
}

function textsOf(filter: object): Record<string, string> {
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => typeof value === 'string' && value !== ''));
}

function conflict(message: string) {
  return refuse(400, WRONG_VALUE, message);
}
