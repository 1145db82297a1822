import { ApiError, messageOf } from '../../lib/errors.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { DeviceUpdate } from '../../management/resources/device.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { LiveView, SessionCommand } from '../endpoints/live-view.ts';
import type { BulkActionRow, BulkDevice } from '../store/bulk-actions.ts';
import { COMMAND } from '../store/command-access.ts';
import type { DeviceRow } from '../store/devices.ts';
import type { Caller } from '../store/sql/database.ts';
import type { Store } from '../store/store.ts';
import { approveDevice, deleteDevice, revokeDevice, rotateDevice, updateDevice } from './manage-devices.ts';

/** Devices that one transaction changes: other work waits for it. */
const CHANGED_AT_ONCE = 50;
/** Agents that are told at once, and the pause after them: all of them connect again. */
const TOLD_AT_ONCE = 20;
const TOLD_PAUSE_MS = 200;
const RETRY_MS = 5_000;
/** Written before an agent is told: if the gateway is killed then, nobody knows. */
const UNKNOWN = 'the gateway stopped while its agent was told: it may or may not have been';

export type BulkContext = Pick<GatewayContext, 'store' | 'clock' | 'log'>;

export interface BulkWorld {
  readonly live: Pick<LiveView, 'find' | 'command' | 'revoke'>;
  /** Host of tcp endpoints, which rules of authtokens name. */
  readonly tcpHost: string;
}

/**
 * Does what bulk actions say, one device after another. What is done is written with it: after a kill, nothing is done twice, and
 * the rest goes on. Of several gateways, the primary node does.
 */
export class BulkRunner {
  readonly #failures = new Repeats();
  #isStopped = false;
  #isAsked = false;
  #running: Promise<void> | null = null;
  readonly #stop = new AbortController();

  constructor(
    private readonly context: BulkContext,
    private readonly world: BulkWorld,
  ) {}

  /** Goes on with what is left, and begins what is new. */
  wake(): void {
    this.#isAsked = true;
    this.#running ??= this.#run().finally(() => {
      this.#running = null;
      if (this.#isAsked && !this.#isStopped) this.wake();
    });
  }

  /** Resolves when nothing is under way; what is left goes on after the next start. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#stop.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    this.#isAsked = false;
    const { bulkActions } = this.context.store;
    for (let next = bulkActions.running(); next !== null && !this.#isStopped; next = bulkActions.running()) {
      try {
        await this.#step(next);
      } catch (error) {
        const times = this.#failures.timesDue('step');
        if (times !== null)
          this.context.log.warn({ id: next.id, times, reason: messageOf(error) }, 'bulk action waits');
        await this.#pause(RETRY_MS);
      }
    }
  }

  /** Waits, at most until the gateway stops. */
  async #pause(ms: number): Promise<void> {
    await this.context.clock.sleep(ms, this.#stop.signal).catch(() => {});
  }

  async #step(action: BulkActionRow): Promise<void> {
    const { store } = this.context;
    const command = commandOf(action);
    const devices = store.bulkActions.left(action.id, command === null ? CHANGED_AT_ONCE : TOLD_AT_ONCE);
    if (!mayGoOn(store, action.by)) return this.#end(action, 'cancelled', 'who began it may not any more');
    if (devices.length === 0) return this.#end(action, 'finished', null);
    if (command === null) return this.#change(action, devices);
    await this.#tell(action, devices, command);
    await this.#pause(TOLD_PAUSE_MS);
  }

  async #end({ id }: BulkActionRow, state: 'finished' | 'cancelled', end_reason: string | null): Promise<void> {
    const { store, log } = this.context;
    const ended = await store.database.write(() => {
      store.bulkActions.forgetOld(store.now());
      return endBulkAction(store, id, state, end_reason);
    }, null);
    if (ended === null) return;
    const { action, devices } = ended;
    const { done, failed, left } = store.bulkActions.progress(ended);
    const line = { id, command: action, devices, done, failed, left, reason: end_reason ?? undefined };
    log.info(line, 'bulk action ended');
  }

  /** Changes rows of devices, each with its progress. */
  async #change(action: BulkActionRow, devices: readonly BulkDevice[]): Promise<void> {
    const { store } = this.context;
    const { live } = this.world;
    const ended = await store.database.write(() => {
      if (!isRunning(store, action)) return [];
      return devices.flatMap(({ device_id: id }) => {
        const before = store.devices.get(id);
        const reason = before === null ? 'deleted meanwhile' : this.#changeOne(action, before);
        store.bulkActions.had(action.id, id, reason);
        const lost = before?.credential_id ?? null;
        return lost !== null && reason === null && store.devices.get(id)?.credential_id !== lost ? [lost] : [];
      });
    }, callerOf(action));
    if (ended.length > 0) await live.revoke({ credentialIds: ended });
  }

  /** @returns why it failed; null: it is done */
  #changeOne(action: BulkActionRow, device: DeviceRow): string | null {
    const { store } = this.context;
    const change = { by: action.by, tcpHost: this.world.tcpHost };
    try {
      switch (action.action) {
        case 'approve':
          approveDevice(store, device, change);
          return null;
        case 'rotate':
          rotateDevice(store, device, change);
          return null;
        case 'revoke':
          revokeDevice(store, device, change);
          return null;
        case 'delete':
          deleteDevice(store, device);
          return null;
        default: {
          const labels = labelsAfter(action, device);
          if (labels === null) return 'it would have more than 20 labels';
          updateDevice(store, device, { labels }, change);
          return null;
        }
      }
    } catch (error) {
      if (error instanceof ApiError) return error.message;
      throw error;
    }
  }

  async #tell(action: BulkActionRow, devices: readonly BulkDevice[], command: SessionCommand): Promise<void> {
    const { store } = this.context;
    const { database, bulkActions } = store;
    const { live } = this.world;
    const online = devices.map(({ device_id: id, name }) => {
      const credential = store.devices.get(id)?.credential_id ?? null;
      return {
        id,
        name,
        credential,
        sessions: credential === null ? [] : live.find.sessionsOf(credential),
      };
    });
    const begins = await database.write(() => {
      if (!isRunning(store, action)) return false;
      for (const { id, name, credential, sessions } of online) {
        bulkActions.had(action.id, id, sessions.length === 0 ? 'offline' : UNKNOWN);
        for (const session of sessions) {
          const after = { id: session.id, command, device: name, credential_id: credential };
          database.noteChange({ table: 'agent_commands', before: null, after });
        }
      }
      return true;
    }, callerOf(action));
    if (!begins) return;
    const told = online.filter(({ sessions }) => sessions.length > 0);
    const results = told.map((each) => ({
      ...each,
      isTold: each.sessions.some(({ id }) => live.command(id, command)),
    }));
    await database.write(() => {
      for (const { id, isTold } of results) bulkActions.had(action.id, id, isTold ? null : 'offline');
    }, null);
  }
}

/** The labels of a device after an action; null: too many. */
export function labelsAfter(
  { labels, remove_labels }: Pick<BulkActionRow, 'labels' | 'remove_labels'>,
  device: Pick<DeviceRow, 'labels'>,
): Record<string, string> | null {
  const kept = Object.entries(device.labels).filter(([name]) => !remove_labels?.includes(name));
  const after = { ...Object.fromEntries(kept), ...labels };
  return DeviceUpdate.safeParse({ labels: after }).success ? after : null;
}

/** What agents are told; null: rows of devices are changed. */
export function commandOf({ action }: Pick<BulkActionRow, 'action'>): SessionCommand | null {
  return action === 'restart' || action === 'disconnect' ? action : null;
}

/** Ends an action, inside a transaction; null: it has ended before. */
export function endBulkAction(
  { bulkActions, now }: Pick<Store, 'bulkActions' | 'now'>,
  id: string,
  state: 'finished' | 'cancelled',
  end_reason: string | null,
): BulkActionRow | null {
  const row = bulkActions.get(id);
  if (row?.state !== 'running') return null;
  const ended = { ...row, state, end_reason, finished_at: now() };
  bulkActions.update(ended);
  return ended;
}

function isRunning({ bulkActions }: Pick<Store, 'bulkActions'>, { id }: BulkActionRow): boolean {
  return bulkActions.get(id)?.state === 'running';
}

/** Each change is that of who began the action, and a part of it. */
function callerOf({ id, by, from_address }: BulkActionRow): Caller {
  return { by, from: from_address, isOperator: true, partOf: id };
}

/** Whether somebody who began an action may still do what it does: who loses the right stops with it. */
function mayGoOn({ apiKeys, botUsers, people }: Store, by: string): boolean {
  if (by === COMMAND) return true;
  if (by.startsWith('prs_')) return people.get(by)?.dashboard === true;
  const key = apiKeys.get(by);
  return key !== null && botUsers.isActive(key.owner_id);
}
