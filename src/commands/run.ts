import { type Agent, startAgent } from '../agent/agent.ts';
import { createLog, type Log } from '../lib/log.ts';
import type { ServiceReport } from '../service/service-report.ts';
import { SettingsSource } from '../settings/agent-settings.ts';
import { loadServiceManager } from '../settings/service-manager-settings.ts';
import { reloadOnHangup } from './reload.ts';
import { endOnUnexpectedError, runUntilStopped } from './until-stopped.ts';

/**
 * Runs the agent until SIGTERM or SIGINT; SIGHUP makes it read its settings again.
 *
 * @throws {OperatorError} when it cannot start
 */
export async function run(): Promise<void> {
  const source = new SettingsSource();
  const { settings } = source.read();
  const log = await createLog(settings.log.level, settings.log.format);
  endOnUnexpectedError(log);
  const starting = startAgent(settings, log);
  let report: ServiceReport | null = null;
  const stop = async () => {
    const agent = await starting;
    await Promise.all([report?.stop(), agent.stop()]);
  };
  runUntilStopped({ stop }, log);
  const agent = await starting;
  reloadOnHangup(source, agent, log);
  await agent.started;
  report = await serviceReport(agent, log);
  await report?.start();
}

/** What systemd is told, where it started this process. */
async function serviceReport(agent: Agent, log: Log): Promise<ServiceReport | null> {
  const settings = loadServiceManager();
  if (settings === null) return null;
  const { Notifier } = await import('../service/notifier.ts');
  const { ServiceReport } = await import('../service/service-report.ts');
  const { watchdogMs } = settings;
  return new ServiceReport({ notifier: new Notifier(settings, log), agent, watchdogMs, log });
}
