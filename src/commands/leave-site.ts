import { join } from 'node:path';
import { type Installation, readInstallation } from '../agent/join/installation.ts';
import { leaveSite } from '../agent/join/known-device.ts';
import { messageOf } from '../lib/errors.ts';
import { printable } from '../lib/terminal-text.ts';
import { withDeadline } from '../lib/time/deadline.ts';
import { serviceEnvironment } from '../service/environment.ts';
import type { Host } from '../service/host.ts';
import { AGENT_SERVICE, configFolderOf, stateFolderOf } from '../service/service.ts';
import { loadJoinSettings } from '../settings/first-start-settings.ts';
import { ENROLMENT_FILE } from '../settings/setting-sources.ts';

/** An unreachable gateway must not keep anybody from removing the service. */
const DEADLINE_MS = 10_000;

/**
 * Ends the enrolment of the service's device, if it has joined a site. Never fails.
 *
 * @param tell prints what happened, and what is left to do when the gateway is unreachable
 */
export async function leaveWithService(host: Host, tell: (line: string) => void): Promise<void> {
  const folders = [configFolderOf, stateFolderOf].map((folderOf) => host.root + folderOf(AGENT_SERVICE));
  for (const folder of folders) {
    const installation = await readInstallation(join(folder, ENROLMENT_FILE)).catch(() => null);
    if (installation?.device) await leave(installation, installation.device, host, tell);
  }
}

async function leave(
  installation: Installation,
  { name, site }: NonNullable<Installation['device']>,
  host: Host,
  tell: (line: string) => void,
): Promise<void> {
  try {
    const { proxies } = loadJoinSettings(serviceEnvironment(AGENT_SERVICE, host));
    await withDeadline(leaveSite(installation, proxies), 'leaving the site', DEADLINE_MS);
    tell(printable(`${name} has left ${site}`));
  } catch (error) {
    const todo = `run there: device-agent gateway devices delete ${name}`;
    tell(printable(`the gateway still lists ${name}: ${messageOf(error)}; ${todo}`));
  }
}
