import { chmod, chown, readFile, rm, stat } from 'node:fs/promises';
import { hasErrno, OperatorError } from '../lib/errors.ts';
import { createFolder, writeDurably } from '../lib/files/durable-write.ts';
import { type Host, withSudo } from './host.ts';
import {
  configFolderOf,
  hasPackagedUnit,
  packagedUnitOf,
  type Service,
  serviceEnvironment,
  settingsFileOf,
  socketFileOf,
  socketOf,
  stateFolderOf,
  unitFileOf,
  userFileOf,
} from './service.ts';
import { isEdited, type ProgramPaths, socketText, unitText, userText } from './unit.ts';

/** Prints a line about a completed step or a next step. */
export type Tell = (line: string) => void;

/**
 * Installs or updates a service: its user, settings and unit. Enables it at boot, and starts it unless the authtoken is
 * missing. Without settings that it needs, the service stays disabled. Unchanged files stay untouched. The Debian package
 * brings its own user and units.
 *
 * @throws {OperatorError} when the unit was edited or belongs to another program, or a system command fails
 */
export async function installService(service: Service, paths: ProgramPaths, host: Host, tell: Tell): Promise<void> {
  const { name } = service;
  const unit = unitText(service, paths);
  const isPackaged = hasPackagedUnit(service, paths.cli, host.root);
  for (const file of [unitFileOf(service), socketFileOf(service)]) await requireOwnUnit(file, host);
  if (!isPackaged) await createUser(service, host);
  await createSettings(service, host, tell);
  const changed = !isPackaged && (await writeIfChanged(host, unitFileOf(service), unit));
  if (!isPackaged) tell(`${unitFileOf(service)}: ${changed ? 'written' : 'up to date'}`);
  const { needs } = service;
  const isReady = await canStart(service, host);
  const lacks = needs && !isReady;
  const socketsChanged = !lacks && (await writeSockets(service, host, tell));
  if (host.isBooted) await host.run('systemctl', 'daemon-reload');
  if (lacks) {
    tell(`${name} is not started yet: ${needs.advice}:`);
    tell(`  sudo nano ${settingsFileOf(service)}`);
    return tell(`  ${withSudo()}`);
  }
  await host.run('systemctl', 'enable', '--quiet', name);
  if (!isReady) {
    tell(`${name} starts at boot, but still needs the authtoken:`);
    tell(`  sudo install -m 600 /dev/stdin ${service.credential?.file}     (paste it, Enter, Ctrl-D)`);
    tell(`  sudo systemctl restart ${name}`);
  } else if (!host.isBooted) {
    tell(`${name} starts at boot; systemd is not running now`);
  } else {
    // systemd opens sockets only while their service does not run.
    if (socketsChanged) await host.run('systemctl', 'stop', name, socketOf(name));
    await host.run('systemctl', changed && !socketsChanged ? 'restart' : 'start', name);
    tell(`${name} is running and starts at boot`);
  }
}

/** Reads a file on the host; null when it does not exist. */
export async function readIfAny(host: Host, path: string): Promise<string | null> {
  return readFile(`${host.root}${path}`, 'utf8').catch((error: unknown) => {
    if (hasErrno(error, 'ENOENT')) return null;
    throw error;
  });
}

/** @returns whether systemd has to open other sockets than before */
async function writeSockets(service: Service, host: Host, tell: Tell): Promise<boolean> {
  if (service.sockets === null) return false;
  const file = socketFileOf(service);
  const addresses = service.sockets(serviceEnvironment(service, host), host.root + stateFolderOf(service));
  if (addresses.length === 0) {
    const wasThere = (await readIfAny(host, file)) !== null;
    if (wasThere && host.isBooted) await host.run('systemctl', 'stop', service.name, socketOf(service.name));
    await rm(`${host.root}${file}`, { force: true });
    return false;
  }
  const text = socketText(service, addresses);
  if (text === (await readIfAny(host, packagedUnitOf(socketOf(service.name))))) {
    const wasThere = (await readIfAny(host, file)) !== null;
    await rm(`${host.root}${file}`, { force: true });
    return wasThere;
  }
  const changed = await writeIfChanged(host, file, text);
  tell(`${file}: ${changed ? 'written' : 'up to date'}`);
  return changed;
}

async function requireOwnUnit(unit: string, host: Host): Promise<void> {
  const found = await readIfAny(host, unit);
  if (found === null || !isEdited(found)) return;
  throw new OperatorError(
    `${unit} was edited and is left unchanged: move your changes to a drop-in (systemctl edit ${unit.slice(unit.lastIndexOf('/') + 1)}), ` +
      'remove the file, and install again',
  );
}

async function createUser(service: Service, host: Host): Promise<void> {
  const file = userFileOf(service);
  await writeIfChanged(host, file, userText(service));
  await host.run('systemd-sysusers', `${host.root}${file}`);
}

/** The service can read its settings, which a reload requires, but not change them. */
async function createSettings(service: Service, host: Host, tell: Tell): Promise<void> {
  const folder = `${host.root}${configFolderOf(service)}`;
  const file = settingsFileOf(service);
  const gid = Number(await host.run('id', '-g', service.name));
  await createFolder(folder, 0o750);
  await chown(folder, 0, gid);
  await chmod(folder, 0o750);
  if ((await readIfAny(host, file)) === null) {
    await writeDurably(`${host.root}${file}`, service.settings, 0o640);
    tell(`${file} created for settings`);
  }
  await chown(`${host.root}${file}`, 0, gid);
}

async function writeIfChanged(host: Host, path: string, text: string): Promise<boolean> {
  if ((await readIfAny(host, path)) === text) return false;
  const file = `${host.root}${path}`;
  await createFolder(file.slice(0, file.lastIndexOf('/')), 0o755);
  await writeDurably(file, text, 0o644);
  return true;
}

/** Whether there is an authtoken, or settings that suffice. */
async function canStart(service: Service, host: Host): Promise<boolean> {
  const { credential, startsWith } = service;
  const file = credential && (await stat(`${host.root}${credential.file}`).catch(() => null));
  if (file && file.size > 0) return true;
  return startsWith.test((await readIfAny(host, settingsFileOf(service))) ?? '');
}
