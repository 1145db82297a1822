import type { Agent } from '../agent/agent.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import type { Log } from '../lib/log/log.ts';
import type { SettingsSource } from '../settings/agent-settings.ts';

/** Reloads the settings at each SIGHUP. Signals during a reload cause one more reload. */
export function reloadOnHangup(source: SettingsSource, agent: Pick<Agent, 'reload'>, log: Log): void {
  // Closing a terminal ends its programs, as usual.
  if (process.stdout.isTTY) return;
  let wanted = false;
  let isWorking = false;
  process.on('SIGHUP', async () => {
    wanted = true;
    if (isWorking) return;
    isWorking = true;
    while (wanted) {
      wanted = false;
      await reload(source, agent, log);
    }
    isWorking = false;
  });
}

async function reload(source: SettingsSource, agent: Pick<Agent, 'reload'>, log: Log): Promise<void> {
  try {
    const { settings, restartFor } = source.read();
    await agent.reload(settings);
    log.info({ log_level: settings.log.level, default_policies: settings.defaultPolicies }, 'settings reloaded');
    if (restartFor.length > 0) log.warn({ settings: restartFor }, 'changed settings need a restart');
  } catch (error) {
    const known = error instanceof OperatorError;
    log.error(
      known ? { reason: messageOf(error) } : { err: error },
      'settings reload failed; keeping the previous ones',
    );
  }
}
