import { existsSync, lstatSync, readFileSync } from 'node:fs';
import { hasErrno, OperatorError } from '../lib/errors.ts';
import { rootCommand } from '../lib/process/own-command.ts';
import { AUTHTOKEN_FILE } from '../settings/agent-settings.ts';
import { STAY_STOPPED } from '../settings/common-settings.ts';
import { gatewayListeners, loadGatewayServerSettings } from '../settings/gateway-settings.ts';
import { ENROLMENT_CREDENTIAL, ENROLMENT_FILE } from '../settings/setting-sources.ts';

/** Where a service listens. */
export interface Address {
  /** IP address. */
  readonly host: string;
  readonly port: number;
}

/** A systemd service of this program, with a user and folders of the same name. */
export interface Service {
  /** Name of the unit (`<name>.service`), the user, `/etc/<name>` and `/var/lib/<name>`. */
  name: string;
  description: string;
  /** The subcommand to run. */
  command: string;
  /** Options of Node; V8 supports changes to them only at process start. */
  nodeOptions: readonly string[];
  /** The sockets that systemd holds for it, by the environment of the service; null: none. */
  sockets: ((env: NodeJS.ProcessEnv, folder: string) => readonly Address[]) | null;
  /** Whether it reloads its settings on SIGHUP. */
  reloads: boolean;
  /** The exit code after which it stays stopped; null: it always restarts. */
  staysStopped: number | null;
  environment: readonly string[];
  /** Credential that systemd reads as root and passes to the service; null: none. */
  credential: { name: string; file: string } | null;
  /** Files of root that systemd passes to the service as well, if they exist. */
  otherCredentials: readonly { name: string; file: string }[];
  /** What to do when the settings lack what a start needs; null: the service is enabled nevertheless. */
  needs: { advice: string } | null;
  /** What `--purge` deletes for good, besides settings; null: nothing that needs a confirmation. */
  irreplaceable: string | null;
  /** Linux capabilities of the service. */
  capabilities: readonly string[];
  /** What the settings must say, or the credential must be there, for a start to make sense; as grep -E reads it, too. */
  startsWith: RegExp;
  /** Initial content of the settings file. */
  settings: string;
}

export const AGENT_SERVICE: Service = {
  name: 'device-agent',
  description: 'Tunnels from this device (device-agent)',
  command: 'run',
  // V8's defaults of 16 MiB and four threads take 5 and 0.6 MiB more memory, and serve no more requests (measured).
  nodeOptions: ['--max-semi-space-size=1', '--v8-pool-size=1'],
  sockets: null,
  reloads: true,
  staysStopped: STAY_STOPPED,
  // Without an authtoken, the service must not start an embedded gateway, which is reachable only locally.
  // The SDK's threads take 30 MiB less after many clients, and are as fast, when they share two of the C library's memory pools
  // (measured with two cores; each further core adds eight pools).
  environment: ['AGENT_GATEWAY=remote', 'AGENT_TUNNELS_DIR=/etc/device-agent/tunnels.d', 'MALLOC_ARENA_MAX=2'],
  credential: { name: 'ngrok-authtoken', file: AUTHTOKEN_FILE },
  // With it, the agent fetches a rotated authtoken.
  otherCredentials: [{ name: ENROLMENT_CREDENTIAL, file: `/etc/device-agent/${ENROLMENT_FILE}` }],
  needs: null,
  irreplaceable: null,
  capabilities: [],
  startsWith: /^\s*(NGROK_AUTHTOKEN|NGROK_AUTHTOKEN_FILE|AGENT_JOIN_CODE)=\S|^\s*AGENT_GATEWAY="?embedded/m,
  settings: `# Settings of the device-agent service; docs/settings.md lists all settings.
# systemctl reload device-agent applies LOG_LEVEL, DEFAULT_POLICIES and the API token; a restart applies everything.
# The authtoken belongs in ${AUTHTOKEN_FILE}, readable only by root.
# device-agent join writes all of these; on an image, AGENT_JOIN_CODE does so at the first start.
#AGENT_JOIN_CODE=
#AGENT_DOMAIN=agent.site-a.example.com
#NGROK_SERVER_ADDR=connect.gateway.example.com:443
#NGROK_CA_CERT=/etc/device-agent/gateway-ca.pem
#LOG_LEVEL=info
`,
};

export const GATEWAY_SERVICE: Service = {
  name: 'device-agent-gateway',
  description: 'Gateway for tunnels from devices (device-agent gateway)',
  command: 'gateway',
  // The first halves the processor time of bulk transfers, see lib/minor-gc.ts. Without the other, V8 has four threads that collect
  // garbage, however few cores there are: on one core under attack, clients then wait a quarter longer.
  nodeOptions: ['--expose-gc', '--v8-pool-size=1'],
  sockets: (env, folder) => gatewayListeners(loadGatewayServerSettings(env, folder)).filter(({ port }) => port !== 0),
  reloads: false,
  staysStopped: null,
  environment: [],
  credential: null,
  otherCredentials: [],
  // Otherwise, it would serve names below localhost, which nobody else can reach.
  needs: {
    advice: `set GATEWAY_DOMAIN or GATEWAY_IP, GATEWAY_HOST and the ports, or run ${rootCommand('gateway init')}, which does`,
  },
  irreplaceable: "the gateway's accounts, domains and authtokens, its certificate authority and its encryption key",
  // For ports 80, 443 and 53.
  capabilities: ['CAP_NET_BIND_SERVICE'],
  startsWith: /^\s*GATEWAY_(?:DOMAIN|IP)=\S/m,
  settings: `# Settings of the device-agent-gateway service; docs/settings.md lists all settings.
#GATEWAY_DOMAIN=gateway.example.com
#GATEWAY_HOST=0.0.0.0
#GATEWAY_HTTPS_PORT=443
#GATEWAY_HTTP_PORT=80
`,
};

export const unitFileOf = ({ name }: Service): string => `/etc/systemd/system/${name}.service`;
export const socketOf = (name: string): string => `${name}.socket`;
export const socketFileOf = ({ name }: Service): string => `/etc/systemd/system/${socketOf(name)}`;
export const configFolderOf = ({ name }: Service): string => `/etc/${name}`;
export const settingsFileOf = (service: Service): string => `${configFolderOf(service)}/settings.env`;
export const stateFolderOf = ({ name }: Service): string => `/var/lib/${name}`;
/** The sysusers.d file that declares the service's user. */
export const userFileOf = ({ name }: Service): string => `/etc/sysusers.d/${name}.conf`;

/** Where the Debian packages have the program. */
export const PACKAGED_PROGRAM = '/usr/lib/device-agent/dist/cli.js';
/** The unit of a service, and the one of its sockets, in the Debian package of the same name. */
export const packagedUnitOf = (unit: string): string => `/usr/lib/systemd/system/${unit}`;
const isPackaged = ({ name }: Service, root: string) => existsSync(root + packagedUnitOf(`${name}.service`));

/** The unit file of an installed service; null: none. That of the Debian package counts once it is enabled or running. */
export function installedUnit(service: Service, root: string): string | null {
  const { name } = service;
  if (existsSync(root + unitFileOf(service))) return unitFileOf(service);
  const signs = [`/etc/systemd/system/multi-user.target.wants/${name}.service`, `/run/${name}`];
  const isUsed = signs.some((path) => lstatSync(root + path, { throwIfNoEntry: false }) !== undefined);
  return isUsed && isPackaged(service, root) ? packagedUnitOf(`${name}.service`) : null;
}

/**
 * Whether the Debian package has the units of a service: then they are never written.
 *
 * @param program path of the program that asks
 * @throws {OperatorError} when this program and the package are not the same
 */
export function hasPackagedUnit(service: Service, program: string, root: string): boolean {
  const { name } = service;
  const found = isPackaged(service, root);
  if (found && program !== PACKAGED_PROGRAM) {
    throw new OperatorError(
      `the Debian package ${name} has this service: run sudo /usr/bin/device-agent instead of ${program}, ` +
        `or remove the package first: sudo apt remove ${name}`,
    );
  }
  if (!found && program === PACKAGED_PROGRAM)
    throw new OperatorError(`the service ${name} is not installed: sudo apt install ${name}`);
  return found;
}

/**
 * Builds the environment that the unit gives to the service. Requires root, as it reads the authtoken.
 *
 * @throws the system's error when the authtoken's file is unreadable
 */
export function serviceEnvironment(service: Service, { root }: { root: string }): Record<string, string> {
  const { environment, credential } = service;
  const authtoken = credential && root + credential.file;
  return {
    ...Object.fromEntries(environment.map((line) => line.split('=', 2) as [string, string])),
    DATA_DIR: root + stateFolderOf(service),
    SETTINGS_FILE: root + settingsFileOf(service),
    // For a missing or empty file, the unit creates an empty credential, which counts as unset.
    ...(authtoken !== null && !isBlank(authtoken) && { NGROK_AUTHTOKEN_FILE: authtoken }),
  };
}

function isBlank(file: string): boolean {
  try {
    return readFileSync(file, 'utf8').trim() === '';
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return true;
    throw error;
  }
}
