import { createHash } from 'node:crypto';
import { dirname } from 'node:path';
import { OperatorError } from '../lib/errors.ts';
import { type Service, settingsFileOf, stateFolderOf } from './service.ts';

/** Where the program lies; absolute paths, without symbolic links. */
export interface ProgramPaths {
  node: string;
  cli: string;
}

/** Options that older ones than this version of systemd warn of. */
const RESTART_STEPS_SINCE = 254;
const CHECKSUM = /^# checksum: ([0-9a-f]{16})\n/m;

/**
 * The unit of a service. It starts with a checksum of all the rest, by which an edited file is told from one that may be
 * replaced.
 *
 * @param systemd version that is to read it; left out, what every one since 247 understands
 */
export function unitText(service: Service, paths: ProgramPaths, systemd = 247): string {
  const body = [
    unitSection(service),
    serviceSection(service, paths, systemd),
    '[Install]\nWantedBy=multi-user.target\n',
  ].join('\n');
  const header = `# Written by device-agent service install. Changes belong into a drop-in: systemctl edit ${service.name}\n`;
  return `${header}# checksum: ${checksum(body)}\n\n${body}`;
}

/** Whether somebody changed the file after it was written. */
export function isEdited(text: string): boolean {
  const [line = '', sum] = CHECKSUM.exec(text) ?? [];
  return sum === undefined || checksum(text.slice(text.indexOf(line) + line.length + 1)) !== sum;
}

/** The user of a service, for systemd-sysusers. */
export function userText(service: Service): string {
  return `u ${service.name} - "${service.description}" ${stateFolderOf(service)}\n`;
}

function checksum(body: string): string {
  return createHash('sha256').update(body).digest('hex').slice(0, 16);
}

function unitSection({ description }: Service): string {
  return `[Unit]
Description=${description}
# Only for the order of stopping: it starts without a network and waits for one.
After=network.target
# It never gives up, however often the start fails.
StartLimitIntervalSec=0
`;
}

function serviceSection(service: Service, paths: ProgramPaths, systemd: number): string {
  return [
    '[Service]',
    ...running(service, paths),
    ...pauses(systemd),
    '',
    ...access(service, paths),
    '',
    '# What it never needs.',
    ...HARDENING,
    '',
  ].join('\n');
}

/** Soon after the first failure; but what keeps on failing must not wear a card out with its log. */
function pauses(systemd: number): string[] {
  if (systemd < RESTART_STEPS_SINCE) return ['RestartSec=10'];
  return ['RestartSec=2', 'RestartSteps=5', 'RestartMaxDelaySec=60'];
}

function running(service: Service, { node, cli }: ProgramPaths): string[] {
  return [
    '# Ready once it answers; the messages come from systemd-notify, a process of its own.',
    'Type=notify',
    'NotifyAccess=all',
    '# It reports while its event loop turns and what it does all the time makes progress.',
    'WatchdogSec=120',
    ...(service.reloads ? ['ExecReload=/bin/kill -HUP $MAINPID'] : []),
    `ExecStart=${[quoted(node), ...service.nodeOptions, quoted(cli), service.command].join(' ')}`,
    'Restart=always',
    '# An old processor that boots from a slow card starts everything at once; nothing must be ended for being slow.',
    'TimeoutStartSec=300',
    'TimeoutStopSec=15',
  ];
}

function access(service: Service, paths: ProgramPaths): string[] {
  const { name, credential, environment, capabilities } = service;
  return [
    `User=${name}`,
    `StateDirectory=${name}`,
    'StateDirectoryMode=0700',
    '# Sockets lie in memory.',
    `RuntimeDirectory=${name}`,
    'RuntimeDirectoryMode=0700',
    `Environment=TMPDIR=/run/${name}`,
    `WorkingDirectory=${stateFolderOf(service)}`,
    ...environment.map((line) => `Environment=${line}`),
    `Environment=DATA_DIR=${stateFolderOf(service)}`,
    `Environment=SETTINGS_FILE=${settingsFileOf(service)}`,
    `EnvironmentFile=-${settingsFileOf(service)}`,
    ...(credential === null
      ? []
      : [
          `LoadCredential=${credential.name}:${credential.file}`,
          '# An empty one when the file is missing: the program then says what to do.',
          `SetCredential=${credential.name}:\\n`,
        ]),
    `AmbientCapabilities=${capabilities.join(' ')}`,
    `CapabilityBoundingSet=${capabilities.join(' ')}`,
    // Root of a user namespace has no say over the ports of the machine.
    ...(capabilities.length === 0 ? ['PrivateUsers=yes'] : []),
    ...homes(paths),
  ];
}

/** A program that lies in somebody's home is all that the service sees of homes. */
function homes({ node, cli }: ProgramPaths): string[] {
  const shown = [node, programFolder(cli)].filter((path) => /^\/(home|root|run\/user)\//.test(path));
  if (shown.length === 0) return ['ProtectHome=yes'];
  return ['ProtectHome=tmpfs', ...shown.map((path) => `BindReadOnlyPaths=${quoted(path)}`)];
}

/** The folder that holds the program with all that it loads. */
function programFolder(cli: string): string {
  const [before] = cli.split('/node_modules/');
  return before === undefined || before === cli ? dirname(dirname(cli)) : before;
}

const HARDENING = [
  'UMask=0077',
  'LimitNOFILE=65536',
  '# A core dump would hold the authtoken.',
  'LimitCORE=0',
  'NoNewPrivileges=yes',
  'ProtectSystem=strict',
  'PrivateTmp=yes',
  'PrivateDevices=yes',
  'PrivateMounts=yes',
  'ProtectClock=yes',
  'ProtectControlGroups=yes',
  'ProtectHostname=yes',
  'ProtectKernelLogs=yes',
  'ProtectKernelModules=yes',
  'ProtectKernelTunables=yes',
  'ProtectProc=invisible',
  'ProcSubset=pid',
  'KeyringMode=private',
  'LockPersonality=yes',
  'RemoveIPC=yes',
  'RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK',
  'RestrictNamespaces=yes',
  'RestrictRealtime=yes',
  'RestrictSUIDSGID=yes',
  'SystemCallArchitectures=native',
  'SystemCallFilter=@system-service',
  'SystemCallFilter=~@privileged @resources',
  'SystemCallErrorNumber=EPERM',
];

/** A path as systemd reads it in a line of words. */
function quoted(path: string): string {
  if (!/^[\w@.,+=~ /-]+$/.test(path)) {
    throw new OperatorError(
      `the path ${path} is not supported in a unit: move the program to another folder, such as /opt`,
    );
  }
  return path.includes(' ') ? `"${path}"` : path;
}
