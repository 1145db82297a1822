import { AUTHTOKEN_FILE } from '../settings/agent-settings.ts';

/** One of the two programs that run as a service of systemd, each with a user and folders of its own name. */
export interface Service {
  /** Of the unit (`<name>.service`), the user, `/etc/<name>` and `/var/lib/<name>`. */
  name: string;
  description: string;
  /** The subcommand to run. */
  command: string;
  /** Options of Node, which V8 takes safely only at the start of the process. */
  nodeOptions: readonly string[];
  /** Whether it reads its settings again on SIGHUP. */
  reloads: boolean;
  environment: readonly string[];
  /** What systemd reads as root and hands to the service alone; null: nothing. */
  credential: { name: string; file: string } | null;
  /** What it may do beyond any user's rights. */
  capabilities: readonly string[];
  /** What stands in the file of settings at first. */
  settings: string;
}

export const AGENT_SERVICE: Service = {
  name: 'device-agent',
  description: 'Tunnels from this device (device-agent)',
  command: 'run',
  // V8's default of 16 MiB takes 5 MiB more memory on a Pi and serves no more requests (measured).
  nodeOptions: ['--max-semi-space-size=1'],
  reloads: true,
  // Without an authtoken it must not come up with a gateway that nobody reaches.
  environment: ['AGENT_GATEWAY=remote'],
  credential: { name: 'ngrok-authtoken', file: AUTHTOKEN_FILE },
  capabilities: [],
  settings: `# Settings of the service device-agent; docs/settings.md lists all of them.
# systemctl reload device-agent applies LOG_LEVEL, DEFAULT_POLICIES and the API token; a restart applies everything.
# Put the authtoken into ${AUTHTOKEN_FILE}, which only root needs to read.
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
  // Halves the processor time of bulk transfers, see lib/minor-gc.ts.
  nodeOptions: ['--expose-gc'],
  reloads: false,
  environment: [],
  credential: null,
  // The ports 80, 443 and 53.
  capabilities: ['CAP_NET_BIND_SERVICE'],
  settings: `# Settings of the service device-agent-gateway; docs/settings.md lists all of them.
#GATEWAY_DOMAIN=gateway.example.com
#GATEWAY_HOST=0.0.0.0
#GATEWAY_HTTPS_PORT=443
#GATEWAY_HTTP_PORT=80
`,
};

export const unitFileOf = ({ name }: Service): string => `/etc/systemd/system/${name}.service`;
export const configFolderOf = ({ name }: Service): string => `/etc/${name}`;
export const settingsFileOf = (service: Service): string => `${configFolderOf(service)}/settings.env`;
export const stateFolderOf = ({ name }: Service): string => `/var/lib/${name}`;
/** The declaration of its user for systemd-sysusers. */
export const userFileOf = ({ name }: Service): string => `/etc/sysusers.d/${name}.conf`;
