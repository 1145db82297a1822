import { existsSync } from 'node:fs';
import { lstat, readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { apiAddress, callAgent } from '../../agent/api-client.ts';
import {
  exportText,
  openSavedTunnels,
  readImport,
  readSavedTunnels,
  type TunnelStep,
  type TunnelsTarget,
} from '../../agent/offline/saved-tunnels.ts';
import { EXIT_UNREACHABLE, hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import { isDataFolderHeld, openDataFolder } from '../../lib/files/data-folder.ts';
import { writeDurably } from '../../lib/files/durable-write.ts';
import { printableJson } from '../../lib/json-text.ts';
import { createLog } from '../../lib/log/log.ts';
import type { Settings } from '../../settings/agent-settings.ts';
import { note, print, show } from '../output.ts';
import { agentSettings, becomeOwnerOf } from '../settings-place.ts';

interface Outcome {
  domain: string;
  result: TunnelStep['result'];
  /** Why the tunnel differs from the file; null when it does not. */
  reason: string | null;
}

/**
 * Exports the saved tunnels, whether an agent runs or not.
 *
 * @param file `-` or left out: standard output
 * @throws {OperatorError} when the tunnels cannot be read or the file cannot be written
 */
export async function exportTunnels(file: string | undefined): Promise<void> {
  const { main, backup, path, tunnels } = await readSavedTunnels(agentSettings('data').dataDir);
  // DATA_DIR is probably wrong, and an empty export could be mistaken for a backup.
  if (!existsSync(dirname(path))) {
    throw new OperatorError(`no data in ${dirname(path)}: run this in the agent's folder, or set DATA_DIR to its data`);
  }
  if (main.state === 'unusable') throw new OperatorError(main.reason);
  if (main.state === 'damaged' && backup.state !== 'good') {
    throw new OperatorError(`${path} is damaged and has no good copy: ${main.reason}`);
  }
  const text = exportText(tunnels);
  if (file === undefined || file === STANDARD) return print(printableJson(text).trimEnd());
  await writeExport(file, text);
  print(`${tunnels.length} ${tunnels.length === 1 ? 'tunnel' : 'tunnels'} written to ${file}`);
}

async function writeExport(file: string, text: string): Promise<void> {
  try {
    // The file would replace a device or a link such as /dev/stdout, for all programs.
    if (!(await isReplaceable(file))) throw new OperatorError(`${file} is not a regular file; choose another name`, 2);
    // Policies may hold passwords.
    await writeDurably(file, text, 0o600);
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw new OperatorError(`cannot write ${file}: ${messageOf(error)}`);
  }
}

async function isReplaceable(file: string): Promise<boolean> {
  try {
    return (await lstat(file)).isFile();
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return true;
    throw error;
  }
}

/**
 * Creates the missing tunnels of a file: through the API of a running agent, else on the disk. Existing tunnels that
 * differ are kept.
 *
 * @param file `-`: standard input
 * @throws {OperatorError} exit code 2 when the file is unusable, 1 when a tunnel still differs from the file
 */
export async function importTunnels(file: string, options: { json?: boolean }): Promise<void> {
  const settings = agentSettings('data');
  const source = file === STANDARD ? 'standard input' : file;
  const stepsFor = await readImport(await readText(file, source), source, settings);
  const outcomes = await withTunnels(settings, async (target) => {
    const done: Outcome[] = [];
    for (const step of stepsFor(target.present)) {
      const { domain, result, detail } = await take(step, target);
      done.push({ domain, result, reason: detail });
    }
    return done;
  });
  show(outcomes, options, (shown) => describe(shown, source));
  const wrong = outcomes.filter(({ reason }) => reason !== null).length;
  if (wrong > 0) throw new OperatorError(`${wrong} of ${outcomes.length} tunnels differ from ${source}`);
}

/** Takes a step. @returns what has become of it, and what the agent has answered */
export async function take(
  { run, ...planned }: TunnelStep,
  target: TunnelsTarget,
): Promise<Omit<TunnelStep, 'run'> & { answer: unknown }> {
  try {
    return { ...planned, answer: await run(target) };
  } catch (error) {
    return { ...planned, result: 'failed', detail: messageOf(error).replace(/\n\s*/g, '; '), answer: undefined };
  }
}

function describe(outcomes: readonly Outcome[], source: string): string {
  return outcomes.length === 0 ? `no tunnels in ${source}` : outcomes.map(line).join('\n');
}

function line({ domain, result, reason }: Outcome): string {
  return `${result.padEnd(9)}  ${domain}${reason === null ? '' : `: ${reason}`}`;
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
  const { tunnels: present } = await readSavedTunnels(settings.dataDir);
  // Reports an unreachable agent once instead of for every tunnel.
  await callAgent(settings, 'GET /status');
  return work({
    present,
    create: (body) => callAgent(settings, 'POST /tunnels', { body }),
    change: ({ url }, body) => callAgent(settings, 'PATCH /tunnels/{url_part}', { url_part: url, body }),
    remove: ({ url }) => callAgent(settings, 'DELETE /tunnels/{url_part}', { url_part: url }),
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
    return await work(await openSavedTunnels(settings.dataDir, log));
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
    await callAgent(settings, 'GET /healthz', { deadlineMs: 5000 });
    return true;
  } catch (error) {
    if (error instanceof OperatorError && error.exitCode === EXIT_UNREACHABLE) return false;
    throw error;
  }
}
