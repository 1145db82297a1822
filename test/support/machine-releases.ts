import type { KeyObject } from 'node:crypto';
import { expect } from 'vitest';
import { VERSION } from '../../src/packaged.ts';
import { signedRelease } from './signed-release.ts';
import type { SystemdMachine } from './systemd-machine.ts';
import { until } from './until.ts';

const FOLDER = '/opt/device-agent';
/** Where releases are on a machine. */
export const RELEASES = '/srv/releases';
export const TRIAL = '/var/lib/device-agent-update/trial.json';

/** Installs the built program in a folder of its own. Its dependencies are those of the checkout. */
const INSTALL = `
mkdir -p ${FOLDER}/versions/${VERSION} ${FOLDER}/node_modules ${RELEASES} /etc/device-agent
mount --bind /home/pi/device-agent/node_modules ${FOLDER}/node_modules
cd /home/pi/device-agent && cp -r dist defaults package.json ${FOLDER}/versions/${VERSION}
find ${FOLDER} -xdev -name '*.map' -delete
ln -s versions/${VERSION} ${FOLDER}/current
ln -s ${FOLDER}/current/dist/cli.js /usr/local/bin/device-agent
chmod -R a+rX ${FOLDER}/versions`;

/** Makes the archive of another version from the built program. $0: its version, $1: a command in its folder */
const PACK = `set -e
rm -rf /srv/build && mkdir -p "/srv/build/$0" && cd /home/pi/device-agent
cp -r dist defaults package.json "/srv/build/$0" && cd "/srv/build/$0" && find . -name '*.map' -delete
sed -i "s/\\"version\\": \\"${VERSION}\\"/\\"version\\": \\"$0\\"/" package.json
grep -rl '"${VERSION}"' dist --include='*.js' | xargs sed -i "s/\\"${VERSION}\\"/\\"$0\\"/"
eval "$1"
tar -czf "${RELEASES}/device-agent-$0-linux-any.tar.gz" -C /srv/build "$0"
cd ${RELEASES} && sha256sum "device-agent-$0-linux-any.tar.gz" && stat -c %s "device-agent-$0-linux-any.tar.gz"`;

/** A change to a version: its gateway changes its database so that older ones refuse it. */
export const NEWER_SCHEMA = `sed -i 's/^const SCHEMA_VERSION = /MIGRATIONS.push("CREATE TABLE newer (a TEXT) STRICT;");\\n&/' dist/migrations-*.js; grep -q 'TABLE newer' dist/migrations-*.js`;

/** Installs the program on a machine, where it trusts the publisher. */
export async function installProgram(machine: SystemdMachine, keySet: string): Promise<void> {
  await machine.run('sh', '-ec', INSTALL);
  await machine.write('/etc/device-agent/update-keys.json', keySet);
}

/** Publishes a version in the machine's folder of releases. @param change a command in the folder of the version */
export async function publishOn(
  machine: SystemdMachine,
  key: KeyObject,
  version: string,
  change = 'true',
): Promise<void> {
  const { code, stdout, stderr } = await machine.run('sh', '-c', PACK, version, change);
  expect([code, stderr]).toEqual([0, '']);
  const [, sha256 = '', file = '', size] = /^(\w+) +(\S+)\n(\d+)/.exec(stdout) ?? [];
  const text = signedRelease(
    version,
    { kind: 'folder', architecture: 'any', name: file, size: Number(size), sha256 },
    key,
  );
  for (const each of ['manifest.json', `manifest-${version}.json`]) await machine.write(`${RELEASES}/${each}`, text);
}

/** Starts an update in the background. */
export async function beginUpdate(machine: SystemdMachine, ...args: string[]): Promise<void> {
  const script = `rm -f /tmp/update.log; (device-agent update ${args.join(' ')}; echo "exit code $?") > /tmp/update.log 2>&1 &`;
  await machine.run('sh', '-c', script);
}

/** Runs an update, which may take minutes. @returns what it has printed, and its exit code at the end */
export async function updated(machine: SystemdMachine, ...args: string[]): Promise<string> {
  await beginUpdate(machine, ...args);
  let said = '';
  const isOver = async () => {
    said = await updateLog(machine);
    return said.includes('exit code');
  };
  await until(isOver, 'the end of the update', { withinMs: 400_000, everyMs: 500 });
  return said;
}

/** What the update under way has printed. */
export async function updateLog(machine: SystemdMachine): Promise<string> {
  return (await machine.run('cat', '/tmp/update.log')).stdout;
}
