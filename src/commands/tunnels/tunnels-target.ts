import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { text as textOf } from 'node:stream/consumers';
import { apiAddress, callAgent, tunnelPath } from '../../agent/api-client.ts';
import { isDataFolderHeld, openDataFolder } from '../../agent/folders/data-folder.ts';
import { DurableFile } from '../../agent/tunnels/durable-file.ts';
import type { ChangedMembers, Tunnel } from '../../agent/tunnels/tunnel.ts';
import { type ImportedTunnel, storedTunnel } from '../../agent/tunnels/tunnel-import.ts';
import { TunnelStore } from '../../agent/tunnels/tunnel-store.ts';
import { readTunnelFile, tunnelsCodec, tunnelsFile, tunnelsIn } from '../../agent/tunnels/tunnels-file.ts';
import { EXIT_UNREACHABLE, messageOf, OperatorError } from '../../lib/errors.ts';
import { createLog } from '../../lib/log/log.ts';
import type { Settings } from '../../settings/agent-settings.ts';
import { note } from '../output.ts';
import { becomeOwnerOf } from '../settings-place.ts';

/** Where the tunnels are: a running agent, or its data folder. */
export interface TunnelsTarget {
  present: readonly Tunnel[];
  create(tunnel: ImportedTunnel): Promise<unknown>;
  change(tunnel: Tunnel, members: ChangedMembers): Promise<unknown>;
  remove(tunnel: Tunnel): Promise<unknown>;
}

/** Standard output or input. */
export const STANDARD = '-';

/** @throws {OperatorError} exit code 2 when the file is unreadable */
export async function readText(file: string, source: string): Promise<string> {
  try {
    return await (file === STANDARD ? textOf(process.stdin) : readFile(file, 'utf8'));
  } catch (error) {
    throw new OperatorError(`cannot read ${source}: ${messageOf(error)}`, 2);
  }
}

/**
 * Works on the tunnels of a running agent through its API, else on those in its data folder, which is locked meanwhile.
 *
 * @throws {OperatorError} when neither can be used
 */
export async function withTunnels<T>(settings: Settings, work: (target: TunnelsTarget) => Promise<T>): Promise<T> {
  if (!(await isAgentRunning(settings))) return ontoDisk(settings, work);
  const present = tunnelsIn(await readTunnelFile(tunnelsFile(settings.dataDir)));
  // Reports an unreachable agent once instead of for every tunnel.
  await callAgent(settings, 'GET', '/status');
  return work({
    present,
    create: (body) => callAgent(settings, 'POST', '/tunnels', { body }),
    change: ({ url }, body) => callAgent(settings, 'PATCH', tunnelPath(url), { body }),
    remove: ({ url }) => callAgent(settings, 'DELETE', tunnelPath(url)),
  });
}

async function isAgentRunning({ dataDir }: Settings): Promise<boolean> {
  try {
    return await isDataFolderHeld(dataDir);
  } catch (error) {
    throw new OperatorError(`cannot read ${dataDir}: ${messageOf(error)}; run this as the agent's user`);
  }
}

async function ontoDisk<T>(settings: Settings, work: (target: TunnelsTarget) => Promise<T>): Promise<T> {
  await rejectOtherFolder(settings);
  const log = await createLog('silent', 'json');
  // From here on, code that is not loaded yet may be unreadable.
  becomeOwnerOf(settings.dataDir);
  const folder = await openDataFolder(settings.dataDir);
  note(`no agent is running on ${settings.dataDir}: the tunnels start with the agent`);
  try {
    const store = new TunnelStore(new DurableFile({ path: tunnelsFile(settings.dataDir), codec: tunnelsCodec, log }));
    await store.open();
    return await work({
      present: store.list(),
      create: (tunnel) => store.save(storedTunnel(tunnel)),
      change: (tunnel, members) => store.save({ ...tunnel, ...members }),
      remove: ({ id }) => store.remove(id),
    });
  } finally {
    await folder.release();
  }
}

/**
 * A data folder that no agent would use, created by accident, would look like a success.
 *
 * @throws {OperatorError} when there is no data folder, or the agent on this device uses another one
 */
async function rejectOtherFolder(settings: Settings): Promise<void> {
  const { dataDir } = settings;
  const advice = "run this in the agent's folder, or set DATA_DIR to its data";
  if (await answers(settings)) {
    throw new OperatorError(`the agent at ${apiAddress(settings)} uses another folder than ${dataDir}: ${advice}`, 2);
  }
  if (existsSync(dataDir)) return;
  throw new OperatorError(`no data in ${dataDir}: ${advice}, or create that folder for a new agent`, 2);
}

async function answers(settings: Settings): Promise<boolean> {
  if (settings.api.port === 0) return false;
  try {
    await callAgent(settings, 'GET', '/healthz', { deadlineMs: 5000 });
    return true;
  } catch (error) {
    if (error instanceof OperatorError && error.exitCode === EXIT_UNREACHABLE) return false;
    throw error;
  }
}
