import { startAgent } from '../agent/agent.ts';
import { createLog } from '../lib/log.ts';
import { loadSettings } from '../settings.ts';
import { endOnUnexpectedError, runUntilStopped } from './until-stopped.ts';

/**
 * Runs the agent until SIGTERM or SIGINT.
 *
 * @throws {OperatorError} when it cannot start
 */
export async function run(): Promise<void> {
  const settings = loadSettings();
  const log = await createLog(settings.log.level, settings.log.format);
  endOnUnexpectedError(log);
  runUntilStopped(await startAgent(settings, log), log);
}
