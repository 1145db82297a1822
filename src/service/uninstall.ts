import { rename, rm } from 'node:fs/promises';
import { hasErrno, messageOf, OperatorError } from '../lib/errors.ts';
import type { Host } from './host.ts';
import { readIfAny, type Tell } from './install.ts';
import {
  configFolderOf,
  installedUnit,
  packagedUnitOf,
  type Service,
  socketFileOf,
  socketOf,
  stateFolderOf,
  unitFileOf,
  userFileOf,
} from './service.ts';
import { isEdited } from './unit.ts';

/**
 * Stops and removes a service. The units of the Debian package stay, disabled.
 *
 * @param purge also deletes settings, authtoken, tunnels and the user
 * @throws {OperatorError} when a system command fails
 */
export async function uninstallService(service: Service, purge: boolean, host: Host, tell: Tell): Promise<void> {
  const { name } = service;
  const unit = installedUnit(service, host.root);
  if (unit === null) {
    tell(`${name} is not installed`);
  } else {
    await host.run('systemctl', 'disable', '--quiet', ...(host.isBooted ? ['--now'] : []), name);
    const isPackaged = unit !== unitFileOf(service);
    if (!isPackaged) await removeUnit(`${host.root}${unit}`, (await readIfAny(host, unit)) ?? '', tell);
    const sockets = await readIfAny(host, socketFileOf(service));
    if (sockets !== null) {
      if (host.isBooted) await host.run('systemctl', 'stop', socketOf(name));
      await removeUnit(`${host.root}${socketFileOf(service)}`, sockets, tell);
    }
    if (host.isBooted) await host.run('systemctl', 'daemon-reload');
    tell(
      isPackaged ? `${name} stopped and disabled; to remove the package: sudo apt remove ${name}` : `${name} removed`,
    );
  }
  await rm(`${host.root}${userFileOf(service)}`, { force: true });
  const kept = [configFolderOf(service), stateFolderOf(service)];
  if (purge) await purgeFiles(service, kept, host, tell);
  else tell(`settings and data kept in ${kept.join(' and ')}; --purge deletes them`);
}

async function removeUnit(file: string, text: string, tell: Tell): Promise<void> {
  if (!isEdited(text)) return rm(file);
  await rename(file, `${file}.edited`);
  tell(`the unit was edited; kept as ${file}.edited`);
}

async function purgeFiles(service: Service, folders: string[], host: Host, tell: Tell): Promise<void> {
  for (const folder of [...folders, `${unitFileOf(service)}.d`, `${socketFileOf(service)}.d`]) {
    await rm(`${host.root}${folder}`, { recursive: true, force: true });
  }
  tell('settings and data deleted');
  // The package needs it again, and deletes it when it is purged.
  if ((await readIfAny(host, packagedUnitOf(`${service.name}.service`))) !== null) return;
  const users = (await readIfAny(host, '/etc/passwd')) ?? '';
  if (users.split('\n').some((line) => line.startsWith(`${service.name}:`))) await deleteUser(service.name, host, tell);
}

/** What matters is gone by now: a user without files or processes is no failure. */
async function deleteUser(name: string, host: Host, tell: Tell): Promise<void> {
  try {
    await host.run('userdel', name);
  } catch (error) {
    const isAbsent = error instanceof OperatorError && hasErrno(error.cause, 'ENOENT');
    tell(
      `the user ${name} stays: ${isAbsent ? 'userdel not found' : messageOf(error)}; delete it with: userdel ${name}`,
    );
  }
}
