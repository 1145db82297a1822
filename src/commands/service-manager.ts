import type { Log } from '../lib/log/log.ts';
import type { ServiceReport, SupervisedProgram } from '../service/service-report.ts';
import { loadServiceManager } from '../settings/service-manager-settings.ts';

/** Reports the program's state to systemd; null when systemd did not start this process. */
export async function serviceReport(program: SupervisedProgram, log: Log): Promise<ServiceReport | null> {
  const settings = loadServiceManager();
  if (settings === null) return null;
  const { Notifier } = await import('../service/notifier.ts');
  const { ServiceReport } = await import('../service/service-report.ts');
  return new ServiceReport({ notifier: new Notifier(settings, log), program, watchdogMs: settings.watchdogMs, log });
}
