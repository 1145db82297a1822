import { join } from 'node:path';
import type { GatewayStart } from './gateway-options.ts';
import { noteBackup } from './store/last-backup.ts';

/** Makes a backup every day, if that is a setting. Each of several gateways makes its own: any of them may be lost. */
export async function startDailyBackups({ options, store, log, onStop }: GatewayStart): Promise<void> {
  const { backups: plan = null, domain, settings = '' } = options;
  if (plan === null) return;
  // Most gateways on small devices never need it.
  const { writeBackup } = await import('./backup/backup-file.ts');
  const { DailyBackups } = await import('./backup/daily-backups.ts');
  const { database, box } = store;
  const folder = join(options.dataDir, 'gateway');
  const write = async (file: string) => {
    await writeBackup(file, { database, folder, domain, settings, box });
    // The backup is there all the same.
    await noteBackup(database).catch((err: unknown) => log.warn({ err }, 'backup not recorded in the database'));
  };
  const backups = new DailyBackups({ plan, write, log });
  backups.start();
  onStop(() => backups.stop());
}
