import { existsSync, readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join as joinPath } from 'node:path';
import { hasErrno, messageOf } from '../../lib/errors.ts';
import { openDataFolder } from '../../lib/files/data-folder.ts';
import type { Log } from '../../lib/log/log.ts';
import { systemClock } from '../../lib/time/clock.ts';
import { BOOT_FILE, type FirstStartSettings } from '../../settings/first-start-settings.ts';
import { ENROLMENT_FILE, JOINED_SETTINGS } from '../../settings/setting-sources.ts';
import { hasJoined, machineId, readInstallation } from './installation.ts';
import { type EnrolOptions, type JoinFiles, joinSite } from './join-site.ts';

/**
 * Joins a site at the first start of an agent that has a code but no authtoken, and of a copy of its card in another
 * machine. Waits for the network and for an approval as long as it takes.
 *
 * @param before called when it is going to join, before anything is sent
 * @throws {OperatorError} when the gateway refuses the device, or the file of its enrolment is damaged and it has no settings
 */
export async function joinAtFirstStart(
  start: FirstStartSettings,
  log: Log,
  bootFile = BOOT_FILE,
  before: () => Promise<void> = async () => {},
): Promise<void> {
  const code = start.code ?? codeOf(bootFile, log);
  if (code === null) return;
  const files = filesIn(start.dataDir);
  try {
    if (hasJoined(await readInstallation(files.installation), code, machineId())) return;
  } catch (err) {
    // A device that has its settings is better online than waiting for somebody who restores the file.
    if (!existsSync(files.settings)) throw err;
    log.error({ err, file: files.installation }, 'enrolment unreadable; this device keeps its settings');
    return;
  }
  // Two processes that start at once must not both make a key.
  const folder = await openDataFolder(start.dataDir);
  try {
    await before();
    await join(code, start, log);
  } finally {
    await folder.release();
  }
}

async function join(code: string, start: FirstStartSettings, log: Log): Promise<void> {
  log.info('joining a site');
  const { name, site, domain } = await joinSite(code, filesIn(start.dataDir), {
    name: start.name ?? hostname(),
    proxies: start.proxies,
    clock: systemClock,
    deadline: null,
    onWait: logRarely(log),
  });
  log.info({ device_name: name, site, domain }, 'site joined');
}

/** Logs a new reason at once, then after twice as many attempts each time: log writes wear out SD cards. */
function logRarely(log: Log): EnrolOptions['onWait'] {
  let last = '';
  let times = 0;
  return ({ reason, isPending, wait_ms }) => {
    times = reason === last ? times + 1 : 1;
    last = reason;
    if (!Number.isInteger(Math.log2(times))) return;
    if (isPending) log.info({ reason, wait_ms }, 'waiting for approval');
    else log.warn({ reason, wait_ms }, 'gateway unreachable; joining later');
  };
}

/** In the data folder, which is all that a service may write. */
function filesIn(dataDir: string): JoinFiles {
  return {
    installation: joinPath(dataDir, ENROLMENT_FILE),
    settings: joinPath(dataDir, JOINED_SETTINGS),
    settingsMode: 0o600,
    authtoken: null,
    ca: joinPath(dataDir, 'gateway-ca.pem'),
  };
}

function codeOf(file: string, log: Log): string | null {
  try {
    return readFileSync(file, 'utf8').trim() || null;
  } catch (error) {
    if (!hasErrno(error, 'ENOENT') && !hasErrno(error, 'ENOTDIR')) {
      log.warn({ file, reason: messageOf(error) }, 'join code not readable');
    }
    return null;
  }
}
