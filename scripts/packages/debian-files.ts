import { basename } from 'node:path';
import {
  AGENT_SERVICE,
  configFolderOf,
  GATEWAY_SERVICE,
  PACKAGED_PROGRAM,
  packagedUnitOf,
  type Service,
  settingsFileOf,
  socketOf,
  stateFolderOf,
  unitFileOf,
  userFileOf,
} from '../../src/service/service.ts';
import { socketText, unitText, userText } from '../../src/service/unit.ts';
import { ENROLMENT_FILE } from '../../src/settings/setting-sources.ts';

/** Architectures by Debian's names, with those of npm's `--cpu`. */
export const ARCHITECTURES = { amd64: 'x64', arm64: 'arm64', armhf: 'arm' } as const;
export type Architecture = keyof typeof ARCHITECTURES;

/** Node.js has no 32-bit builds from version 24 on: there, the package depends on Debian's. */
export const hasOwnNode = (architecture: Architecture): boolean => architecture !== 'armhf';
export const nodeOf = (architecture: Architecture): string =>
  hasOwnNode(architecture) ? '/usr/lib/device-agent/bin/node' : '/usr/bin/node';

/** The ports that a gateway has without further settings. */
const DEFAULT_PORTS = [443, 80].map((port) => ({ host: '0.0.0.0', port }));

/**
 * What the package of a service has for systemd, by path.
 *
 * @returns units, user and folders
 */
export function systemdFiles(service: Service, architecture: Architecture): Record<string, string> {
  const { name } = service;
  const paths = { node: nodeOf(architecture), cli: PACKAGED_PROGRAM };
  return {
    [packagedUnitOf(`${name}.service`)]: unitText(service, paths),
    ...(service.sockets && { [packagedUnitOf(socketOf(name))]: socketText(service, DEFAULT_PORTS) }),
    [`/usr/lib/sysusers.d/${name}.conf`]: userText(service),
    [`/usr/lib/tmpfiles.d/${name}.conf`]: foldersText(service),
    [templateOf(service)]: service.settings,
  };
}

const templateOf = ({ name }: Service): string => `/usr/share/${name}/settings.env`;

/** The service can read its settings, but not change them. Commands change them: they are no conffile of dpkg's. */
function foldersText(service: Service): string {
  const { name } = service;
  return [
    `d ${configFolderOf(service)} 0750 root ${name} -`,
    `C ${settingsFileOf(service)} 0640 root ${name} - ${templateOf(service)}`,
    '',
  ].join('\n');
}

/** The maintainer scripts of a service's package, by name. */
export function maintainerScripts(service: Service): Record<string, string> {
  return Object.fromEntries(
    Object.entries({
      preinst: preinst(service),
      postinst: postinst(service),
      prerm: prerm(service),
      postrm: postrm(service),
    }).map(([name, body]) => [name, `#!/bin/sh\nset -e\n\n${body}`]),
  );
}

/** Written by the program when it is set up. Its updates end with the package, and go on with the next one. */
const UPDATE_TIMER = '/etc/systemd/system/device-agent-update-check.timer';
const UPDATES_GO_ON = `if [ -e ${UPDATE_TIMER} ] && command -v systemctl > /dev/null; then
  systemctl --quiet enable ${basename(UPDATE_TIMER)} || true
  [ ! -d /run/systemd/system ] || systemctl --no-block start ${basename(UPDATE_TIMER)} || true
fi
`;

function postinst(service: Service): string {
  const { name, credential, startsWith } = service;
  const settings = `grep -Eqs '${startsWith.source}' ${settingsFileOf(service)}`;
  return `# Whether a start makes sense, as device-agent service install decides it.
is_ready() {
  ${credential ? `[ -s ${credential.file} ] || ` : ''}${settings}
}

# The unit that device-agent service install of another installation has written, unless somebody has edited it.
is_generated() {
  [ -f "$1" ] && [ ! -L "$1" ] || return 1
  [ "$(sed -n 's/^# checksum: //p' "$1")" = "$(sed '1,/^# checksum: /d' "$1" | tail -n +2 | sha256sum | cut -c 1-16)" ]
}

[ "$1" = configure ] || exit 0

systemd-sysusers ${name}.conf
systemd-tmpfiles --create ${name}.conf || [ $? = 65 ] || [ $? = 73 ]

previous=$2
if command -v systemctl > /dev/null; then
  own=${unitFileOf(service)}
  if is_generated $own; then
    ! systemctl --quiet is-enabled ${name}.service 2> /dev/null || adopted=yes
    systemctl --quiet disable ${name}.service
    rm -f $own ${userFileOf(service)}
    echo "${name}: the unit of this package replaces $own"
  elif [ -e $own ]; then
    echo "${name}: $own was edited and stays in use: move your changes to a drop-in (systemctl edit ${name}) and remove it" >&2
  fi
  if [ -n "$adopted" ] || { [ -z "$previous" ] && is_ready; }; then
    systemctl --quiet enable ${name}.service
  fi
fi

${name === AGENT_SERVICE.name ? UPDATES_GO_ON : ''}
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # One that is stopped, by whomever, stays so.
  deb-systemd-invoke try-restart ${name}.service > /dev/null || true
  if [ -f ${markOf(service)} ]; then
    rm ${markOf(service)}
    ! systemctl --quiet is-enabled ${name}.service 2> /dev/null || deb-systemd-invoke start ${name}.service > /dev/null || true
  fi
fi
`;
}

/** Says that the package was not there before. dpkg tells only preinst, when the package was removed and not purged. */
const markOf = ({ name }: Service): string => `/run/${name}.installed`;

function preinst(service: Service): string {
  return `if [ "$1" = install ] && [ -d /run/systemd/system ]; then
  touch ${markOf(service)}
fi
`;
}

function prerm({ name, sockets }: Service): string {
  const units = [`${name}.service`, ...(sockets ? [socketOf(name)] : [])].join(' ');
  const noUpdates = `
if [ "$1" = remove ] && [ -e ${UPDATE_TIMER} ]; then
  systemctl --quiet disable --now ${basename(UPDATE_TIMER)} || true
fi
`;
  return `if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  deb-systemd-invoke stop ${units} || true
fi
${name === AGENT_SERVICE.name ? noUpdates : ''}`;
}

/** The program is gone by now, and nothing before says whether a removal is a purge. */
const ENROLMENTS = [configFolderOf, stateFolderOf].map((folderOf) => `${folderOf(AGENT_SERVICE)}/${ENROLMENT_FILE}`);
const SAY_WHO_STAYS = `  for file in ${ENROLMENTS.join(' ')}; do
    name=$(sed -n '/"device": {/,/}/ s/^ *"name": "\\([a-z0-9-]*\\)".*/\\1/p' $file 2> /dev/null || true)
    [ -z "$name" ] || echo "${AGENT_SERVICE.name}: the gateway still lists $name: run there: device-agent gateway devices delete $name"
  done
`;
const PURGE_UPDATES = `  rm -rf /etc/systemd/system/device-agent-update* /etc/systemd/system/*.wants/device-agent-update* /var/lib/device-agent-update
`;

function postrm(service: Service): string {
  const { name, sockets } = service;
  const links = `/etc/systemd/system/multi-user.target.wants/${name}.service`;
  const units = sockets ? ` /etc/systemd/system/${socketOf(name)} /etc/systemd/system/${socketOf(name)}.d` : '';
  return `if [ "$1" = purge ]; then
${name === AGENT_SERVICE.name ? SAY_WHO_STAYS : ''}  rm -rf ${configFolderOf(service)} ${stateFolderOf(service)} /var/cache/${name}
  rm -rf ${links} ${unitFileOf(service)}.d${units}
${name === AGENT_SERVICE.name ? PURGE_UPDATES : ''}  ! getent passwd ${name} > /dev/null || userdel ${name} || true
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
`;
}

/** Fields of the control files. Sizes and versions are added when a package is built. */
export function dependsOf(service: Service, architecture: Architecture, version: string): Record<string, string> {
  const libraries = 'libc6 (>= 2.28), libgcc-s1';
  if (service === GATEWAY_SERVICE) return { Depends: `device-agent (= ${version}), ${libraries}` };
  const node = hasOwnNode(architecture) ? 'libstdc++6' : 'nodejs (>= 20.19)';
  const systemd = ['sysusers', 'tmpfiles'].map((part) => `systemd | systemd-standalone-${part} | systemd-${part}`);
  return {
    Depends: [libraries, node, ...systemd].join(', '),
    Recommends: 'ca-certificates',
    Suggests: 'device-agent-gateway',
  };
}

export const DESCRIPTIONS: Record<string, string> = {
  [AGENT_SERVICE.name]: `tunnels from this device, through a gateway
 Keeps public URLs for programs on this device online, over bad power and bad
 networks: through a gateway of your own (package device-agent-gateway, on a
 server), or through ngrok's network.
 .
 The service starts once the device has joined a gateway or has an authtoken.`,
  [GATEWAY_SERVICE.name]: `gateway for tunnels from devices
 Accepts the tunnels of device-agent on other machines, or on this one, and
 serves them to clients under its domain, with certificates, traffic policies
 and a management API.
 .
 The service starts once "device-agent gateway init" has set it up.`,
};
