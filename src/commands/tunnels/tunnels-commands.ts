import { type Command, InvalidArgumentError, Option } from 'commander';
import { VARIABLES } from '../../settings/variables.ts';
import { defaultCommand, examples, parsedOption } from '../command-line.ts';

const UPSTREAM = 'upstream: a port, host:port, http(s)://host:port or unix:/path';
const STREAM_UPSTREAM = 'upstream: a port, host:port or unix:/path';
const TUNNEL = 'first label, hostname or URL of the tunnel';
const appProtocol = () =>
  new Option('--app-protocol <protocol>', 'What the upstream speaks').choices(['http1', 'http2']);
const API_RESPONSE = 'Print the API’s response';
/** Named as the members of the API; what they say is in `ChangeableOptions`. */
const UPSTREAM_OPTIONS = [
  ['--max-connections <number>', 'Connections to the upstream at a time; further requests wait for one'],
  ['--host-header <host>', 'The Host that the upstream gets: rewrite for its own address, or a name'],
  [
    '--rewrite-redirects <boolean>',
    'Whether redirects to the upstream’s own address lead to the tunnel (default: true)',
  ],
  ['--response-timeout <duration>', 'How long the upstream may take to begin its response, such as 10m'],
  [
    '--upstream-tls-verify <boolean>',
    'Whether to verify the certificate of an https upstream (default: as AGENT_VERIFY_UPSTREAM_TLS says)',
  ],
  ['--upstream-tls-ca-file <file>', 'CA certificates, as PEM, that verify an https upstream (default: the usual ones)'],
  [
    '--upstream-tls-server-name <name>',
    'Name to ask an https upstream for, which its certificate must have (default: its host)',
  ],
  [
    '--upstream-tls-min-version <version>',
    'Lowest version of TLS that an https upstream may speak; 1.0 and 1.1 allow old devices, and are weak (default: 1.2)',
  ],
] as const;

/** Of tunnels of all protocols. */
const BANDWIDTH = [
  '--bandwidth <rate>',
  'How much may pass: 2Mbit in each direction, or to clients and from them, such as 512kbit/2Mbit (default: any number)',
] as const;

export function addShortCommands(program: Command): void {
  for (const [protocol, upstream, ...lines] of [
    ['http', UPSTREAM, 'http 3000', 'http 3000 --domain demo', 'http https://192.168.1.20 --upstream-tls-verify false'],
    ['tcp', STREAM_UPSTREAM, 'tcp 22', 'tcp 192.168.1.20:502'],
    ['tls', STREAM_UPSTREAM, 'tls 8443 --domain demo'],
  ] as const) {
    const command = program
      .command(protocol)
      .description(`Start a tunnel for ${protocol}; where no agent runs, with one that ends with this command`);
    if (protocol === 'http') upstreamOptions(command.addOption(appProtocol()));
    examples(gatewayOptions(startOptions(command, upstream)), ...lines).action(async (forwardsTo, options) =>
      (await import('./temporary-agent.ts')).openTunnel(forwardsTo, { ...options, protocol }),
    );
  }
}

export function addTunnelsCommand(program: Command): void {
  const tunnels = program.command('tunnels').description('Show and change the tunnels of the agent on this device');
  defaultCommand(tunnels, 'list')
    .alias('ls')
    .description('List all tunnels (the default command)')
    .option('--json', API_RESPONSE)
    .option('-w, --watch', 'Print again every two seconds')
    .action(async (options) => (await import('./tunnels-list.ts')).listTunnels(options));
  const start = tunnels.command('start').description('Start a tunnel').addOption(appProtocol());
  examples(startOptions(upstreamOptions(start), UPSTREAM), 'tunnels start 8001 --domain demo --policy deny.yaml')
    .addOption(
      new Option('-p, --protocol <protocol>', 'What clients speak').choices(['http', 'tcp', 'tls']).default('http'),
    )
    .action(async (forwardsTo, options) => (await load()).startTunnel(forwardsTo, options));
  tunnels
    .command('show')
    .description('Show a tunnel and its state')
    .argument('<tunnel>', TUNNEL)
    .option('--json', API_RESPONSE)
    .action(async (tunnel, options) => (await load()).showTunnel(tunnel, options));
  const change = examples(
    tunnels.command('change'),
    'tunnels change demo --forwards-to 3001',
    'tunnels change demo --policy deny.yaml',
  );
  upstreamOptions(change)
    .description('Change what a tunnel forwards to, its policy or its options, which default resets; its URL stays')
    .argument('<tunnel>', TUNNEL)
    .option('-f, --forwards-to <upstream>', UPSTREAM)
    .option(...BANDWIDTH)
    .option('--policy <file>', 'File with the new traffic policy, YAML or JSON')
    .option('--default-policies', 'Use the default policies from now on')
    .option('--json', API_RESPONSE)
    .action(async (tunnel, options) => (await load()).changeTunnel(tunnel, options));
  tunnels
    .command('delete')
    .alias('rm')
    .description('Close and delete a tunnel')
    .argument('<tunnel>', TUNNEL)
    .option('--json', 'Print the result as JSON')
    .action(async (tunnel, options) => (await load()).deleteTunnel(tunnel, options));
  addFileCommands(tunnels);
}

const load = () => import('./tunnels.ts');

function upstreamOptions(command: Command): Command {
  for (const [flags, text] of UPSTREAM_OPTIONS) command.option(flags, text);
  return command;
}

function startOptions(command: Command, upstream: string): Command {
  return command
    .argument('<forwards-to>', upstream)
    .option('-d, --domain <hostname>', 'Public hostname (default: chosen by the gateway)')
    .option('--policy <file>', 'File with the traffic policy, YAML or JSON (default: the default policies)')
    .addOption(
      new Option('--binding <binding>', 'Who reaches it; internal: only policies of other tunnels').choices([
        'public',
        'internal',
      ]),
    )
    .option(...BANDWIDTH)
    .option('--pooling', 'Share the URL with tunnels of other agents that also ask for it')
    .option('--metadata <text>', 'Text for programs, which the gateway lists')
    .addOption(
      new Option('--proxy-proto <version>', 'Start connections to the upstream with a PROXY header').choices([
        '1',
        '2',
      ]),
    )
    .option('--json', API_RESPONSE);
}

/** For an agent that runs as long as the command. */
function gatewayOptions(command: Command): Command {
  return command
    .option(
      '--gateway <url>',
      'Your own gateway, where agents connect: https://connect.gateway.example.com',
      sessionAddress,
    )
    .option('--gateway-ca <file>', 'The gateway’s ca.pem (default: the CAs of this machine)')
    .option('--token <authtoken>', 'Authtoken; - for standard input (default: NGROK_AUTHTOKEN)')
    .option('--join <code>', 'Code of device-agent gateway invite, to join a site meanwhile; - for standard input');
}

/** @returns `host:port` of a URL, or of an address with or without a port */
function sessionAddress(text: string): string {
  const url = text.includes('://') ? text : `https://${text}`;
  const { protocol, host, port } = URL.canParse(url) ? new URL(url) : { protocol: null, host: '', port: '' };
  if (protocol === 'https:') return parsedOption(VARIABLES.NGROK_SERVER_ADDR, port === '' ? `${host}:443` : host);
  throw new InvalidArgumentError('Allowed: https://host[:port], or host[:port].');
}

function addFileCommands(tunnels: Command): void {
  examples(tunnels.command('apply'), 'tunnels apply tunnels.yaml --dry-run', 'tunnels apply tunnels.yaml --prune')
    .description('Create and change tunnels as a YAML or JSON file declares them, whether the agent runs or not')
    .argument('<file>', 'a file with a list called tunnels, see docs/operations.md; - for standard input')
    .option('--prune', 'Delete all tunnels that the file does not declare')
    .option('--dry-run', 'Only print what would be done')
    .option('--json', 'Print the result for each tunnel as JSON')
    .action(async (file, options) => (await import('./tunnels-apply.ts')).applyTunnels(file, options));
  const loadTransfer = () => import('./tunnels-transfer.ts');
  tunnels
    .command('export')
    .description('Export the saved tunnels, whether the agent runs or not')
    .argument('[file]', 'file to write (default: standard output, also as -)')
    .action(async (file) => (await loadTransfer()).exportTunnels(file));
  tunnels
    .command('import')
    .description('Create the tunnels of a file that do not exist yet')
    .argument('<file>', 'an export, or the tunnel file of ngrok’s sample agent in Python; - for standard input')
    .option('--json', 'Print the result for each tunnel as JSON')
    .action(async (file, options) => (await loadTransfer()).importTunnels(file, options));
  tunnels
    .command('move')
    .description('Move tunnels to other names, for example those of a trial to a public domain')
    .option('--from <wildcard>', 'Names to move; tcp tunnels get an address that the gateway chooses', '*.localhost')
    .option('--to <wildcard>', "New names, such as '*.sitea.example.com' (default: beside AGENT_DOMAIN)")
    .option('--json', 'Print the result for each tunnel as JSON')
    .action(async (options) => (await import('./tunnels-move.ts')).moveTunnels(options));
}
