import { Command } from 'commander';
import { loadManagementSettings } from '../settings/management-settings.ts';
import { VERSION } from '../version.ts';
import { addGatewayCommand } from './gateway.ts';
import { gatewaySettings } from './settings-place.ts';
import { addSetupCommand } from './setup.ts';

export const EXIT_CODES: Readonly<Record<number, string>> = {
  0: 'success',
  1: 'failed or refused',
  2: 'wrong usage or settings',
  3: 'agent, gateway or API unreachable; service not running',
  4: 'no such tunnel or service',
  5: 'not ready in time',
};

/** Builds the command line. The code of a command is loaded only when that command runs, which saves memory. */
export function buildProgram(): Command {
  const command = new Command('device-agent')
    .description('Keep tunnels from this device open, through ngrok’s cloud or your own gateway.')
    .version(VERSION, '-V, --version', 'Show the version')
    .helpOption('-h, --help', 'Show help')
    .option('--debug', 'Show stack traces with errors')
    .exitOverride();
  defaultCommand(command, 'run')
    .description('Run the agent in the foreground (the default command)')
    .action(async () => (await import('./run.ts')).run());
  command
    .command('doctor')
    .description('Diagnose settings, disk, clock, network, gateway, authtoken, domains and upstreams')
    .option('--json', 'Print the findings as JSON')
    .option('--service', 'Diagnose the systemd service, with its settings')
    .action(async (options) => (await import('./doctor.ts')).doctor(options));
  command
    .command('health')
    .description('Check that the agent on this device is alive, for containers and scripts')
    .action(async () => (await import('./health.ts')).health());
  addTunnelsCommand(command);
  addGatewayCommand(command, {
    run: async () => (await import('./gateway-run.ts')).runGateway(),
    location: () => gatewaySettings('data'),
  });
  addServiceCommand(command);
  addSetupCommand(command, loadManagementSettings);
  const exitCodes = Object.entries(EXIT_CODES).map(([code, meaning]) => `  ${code}  ${meaning}`);
  command.addHelpText(
    'after',
    `
Exit codes:
${exitCodes.join('\n')}

Settings come from the environment and from .env in the current folder; docs/settings.md lists them.`,
  );
  pointToHelp(command, 'device-agent');
  return command;
}

/** Makes usage errors point to the command's help; those of the default command point to its parent's. */
function pointToHelp(command: Command, line: string): void {
  command.showHelpAfterError(`(run ${line} --help for usage)`);
  if (command.commands.length > 0) command.helpCommand('help [command]', 'Show help for a command');
  for (const each of command.commands) pointToHelp(each, each.name() === 'run' ? line : `${line} ${each.name()}`);
}

/** Adds the command that runs without a name. Commander would pass it a misspelt command as an argument. */
function defaultCommand(parent: Command, name: string): Command {
  return parent
    .command(name, { isDefault: true })
    .allowExcessArguments()
    .hook('preAction', ({ args: [unknown] }) => {
      if (unknown !== undefined) parent.error(`error: unknown command '${unknown}'`);
    });
}

function addTunnelsCommand(program: Command): void {
  const tunnels = program.command('tunnels').description('Show and change the tunnels of the agent on this device');
  const load = () => import('./tunnels.ts');
  defaultCommand(tunnels, 'list')
    .alias('ls')
    .description('List all tunnels (the default command)')
    .option('--json', 'Print the API’s response')
    .action(async (options) => (await load()).listTunnels(options));
  tunnels
    .command('start')
    .description('Start a tunnel')
    .argument('<forwards-to>', 'upstream: a port, host:port, http(s)://host:port or unix:/path')
    .option('-d, --domain <hostname>', 'Public hostname (default: chosen by the gateway)')
    .option('-p, --protocol <protocol>', 'http, tcp or tls', 'http')
    .option('--policy <file>', 'JSON file with the traffic policy (default: the default policies)')
    .option('--json', 'Print the API’s response')
    .action(async (forwardsTo, options) => (await load()).startTunnel(forwardsTo, options));
  tunnels
    .command('show')
    .description('Show a tunnel and its state')
    .argument('<tunnel>', 'first label, hostname or URL of the tunnel')
    .option('--json', 'Print the API’s response')
    .action(async (tunnel, options) => (await load()).showTunnel(tunnel, options));
  tunnels
    .command('delete')
    .alias('rm')
    .description('Close and delete a tunnel')
    .argument('<tunnel>', 'first label, hostname or URL of the tunnel')
    .action(async (tunnel) => (await load()).deleteTunnel(tunnel));
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
}

function addServiceCommand(program: Command): void {
  const service = program.command('service').description('Run the agent or the gateway as a systemd service');
  const load = () => import('./service.ts');
  service
    .command('install')
    .description('Install or update the service; start it now and at boot')
    .option('--gateway', 'The standalone gateway instead of the agent')
    .action(async (options) => (await load()).install(options));
  service
    .command('uninstall')
    .description('Stop and remove the service; keep settings and data')
    .option('--gateway', 'The standalone gateway instead of the agent')
    .option('--purge', 'Also delete settings, authtoken and data')
    .option('--yes', 'Do not ask before --purge deletes a gateway')
    .action(async (options) => (await load()).uninstall(options));
  service
    .command('status')
    .description('Show the state of the service; exit code 0: running, 3: not running, 4: not installed')
    .option('--gateway', 'The standalone gateway instead of the agent')
    .action(async (options) => (await load()).status(options));
}
