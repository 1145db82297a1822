import { type Agent, type AgentStatus, startAgent } from '../agent/agent.ts';
import { createLog } from '../lib/log/log.ts';
import type { ServiceReport, SupervisedProgram } from '../service/service-report.ts';
import { SettingsSource } from '../settings/agent-settings.ts';
import { logUnknownSettings } from '../settings/unknown-settings.ts';
import { reloadOnHangup } from './reload.ts';
import { serviceReport } from './service-manager.ts';
import { endOnUnexpectedError, runUntilStopped } from './until-stopped.ts';

/**
 * Runs the agent until SIGTERM or SIGINT; SIGHUP reloads its settings.
 *
 * @throws {OperatorError} when it cannot start
 */
export async function run(): Promise<void> {
  const source = new SettingsSource();
  const { settings } = source.read();
  const log = await createLog(settings.log.level, settings.log.format);
  logUnknownSettings(log);
  endOnUnexpectedError(log);
  let starting: Promise<Agent>;
  let report: ServiceReport | null = null;
  const stop = async () => {
    const agent = await starting;
    await Promise.all([report?.stop(), agent.stop()]);
  };
  // Installed first: a signal without a handler would end the process.
  runUntilStopped({ stop }, log);
  reloadOnHangup(source, { reload: async (next) => (await starting).reload(next) }, log);
  starting = startAgent(settings, log);
  const agent = await starting;
  await agent.started;
  report = await serviceReport(programOf(agent), log);
  await report?.start();
}

function programOf(agent: Agent): SupervisedProgram {
  // The session supervisor makes progress with or without a network.
  return { describe: () => describe(agent.status()), silentMs: () => agent.silentMs() };
}

function describe({ session, tunnels, remoteApi }: AgentStatus): string {
  const { online, connecting, offline, failed } = tunnels;
  const reason = session.state === 'online' || !session.lastError ? '' : ` (${session.lastError.message})`;
  const count = `${online} of ${online + connecting + offline + failed} tunnels up`;
  const remote = remoteApi?.state === 'failed' ? `; remote API failed (${remoteApi.lastError?.message})` : '';
  return `${session.state}, ${session.gateway}${reason}; ${count}${remote}`;
}
