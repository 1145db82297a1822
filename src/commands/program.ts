import { Argument, Command, CommanderError, Option } from 'commander';
import { OperatorError } from '../lib/errors.ts';
import { ownCommand } from '../lib/process/own-command.ts';
import { COMMIT, VERSION } from '../packaged.ts';
import { AGENT_SERVICE } from '../service/service.ts';
import { loadManagementSettings } from '../settings/management-settings.ts';
import { defaultCommand, examples } from './command-line.ts';
import { addGatewayCommand } from './gateway/gateway-commands.ts';
import { print } from './output.ts';
import { gatewaySettings, startAdvice } from './settings-place.ts';
import { addSetupCommand } from './setup.ts';
import { addShareCommands } from './shares-commands.ts';
import { addShortCommands, addTunnelsCommand } from './tunnels/tunnels-commands.ts';

export const EXIT_CODES: Readonly<Record<number, string>> = {
  0: 'success',
  1: 'failed or refused',
  2: 'wrong usage or settings',
  3: 'agent, gateway or API unreachable; service not running',
  4: 'no such tunnel, API key or service',
  5: 'not ready in time',
  6: 'agent stopped by the operator of its gateway, as a systemd service',
};

/** Runs the command that the process's arguments name. */
export async function runProgram(): Promise<void> {
  try {
    const { argv } = process;
    // Other programs have both; commander knows one short option for it.
    await buildProgram().parseAsync(argv.length === 3 && argv[2] === '-v' ? [...argv.slice(0, 2), '--version'] : argv);
  } catch (error) {
    if (!(error instanceof CommanderError)) throw await withAdvice(error);
    // Commander has printed the help or the usage error.
    process.exitCode = error.exitCode === 0 ? 0 : 2;
  }
}

/** Adds to an error that no agent answers how to start the one that was meant. */
async function withAdvice(error: unknown): Promise<unknown> {
  const { NoAgent } = await import('../agent/api-client.ts');
  if (!(error instanceof NoAgent)) return error;
  const advice = await startAdvice(AGENT_SERVICE);
  return new OperatorError(`${error.message}; ${advice}`, error.exitCode, { cause: error });
}

/** Builds the command line. The code of a command is loaded only when that command runs, which saves memory. */
export function buildProgram(): Command {
  const command = new Command('device-agent')
    .description('Keep tunnels from this device open, through ngrok’s cloud or your own gateway.')
    .version(versionText(), '-V, --version', 'Show the version and its commit; also -v')
    .helpOption('-h, --help', 'Show help')
    .option('--debug', 'Show stack traces with errors')
    .exitOverride()
    // As all other errors of this program.
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, 'device-agent: ')) });
  defaultCommand(command, 'run')
    .description('Run the agent in the foreground (the default command)')
    .action(async () => (await import('./run.ts')).run());
  command
    .command('status')
    .description('Show the agent’s session, addresses, tunnels and problems; exit code 0: everything works, 1: not')
    .option('--json', 'Print the status as JSON')
    .action(async (options) => (await import('./status.ts')).status(options));
  command
    .command('history')
    .description('Draw what has happened to a tunnel, or how the device was, in the last 24 hours')
    .argument('[tunnel]', 'first label, hostname or URL of the tunnel (default: the device itself)')
    .option('--json', 'Print JSON')
    .action(async (tunnel, options) => (await import('./agent-history.ts')).showAgentHistory(tunnel, options));
  addShortCommands(command);
  addTunnelsCommand(command);
  addShareCommands(command);
  examples(command.command('watch'), 'watch demo', 'watch demo --status 5xx --body', 'watch demo --curl 7')
    .description('Show the requests of a tunnel as they come; inspection is on meanwhile')
    .argument('[tunnel]', 'first label, hostname or URL of the tunnel (default: the only one for http)')
    .option('-m, --method <method>', 'Only requests with this method')
    .option('-p, --path <text>', 'Only requests with this text in path or query')
    .option('-s, --status <status>', 'Only responses with this status, such as 404 or 5xx; none: without a response')
    .option('--min-duration <ms>', 'Only requests that took at least this many milliseconds')
    .option('--body', 'Print headers, bodies and messages')
    .option('--reveal', 'Show secrets, which are masked otherwise')
    .option('--json', 'Print each request as a line of JSON')
    .option('--show <id>', 'Print one captured request, and end')
    .option('--curl <id>', 'Print a curl command that sends it to the tunnel again, and end')
    .option('--replay <id>', 'Send it to the upstream again, print the response, and end')
    .option('--har <file>', 'Write all captured requests as an HTTP archive for browsers, and end')
    .action(async (tunnel: string | undefined, options) => (await import('./watch/watch.ts')).watch(tunnel, options));
  command
    .command('logs')
    .description('Show the log of the agent’s service')
    .option('-f, --follow', 'Continue with new lines')
    .option('-n, --lines <number>', 'Latest lines to show, or all', '100')
    .option('--json', 'Print the journal’s entries as JSON')
    .action(async (options) => (await import('./logs.ts')).logs(options));
  command
    .command('doctor')
    .description('Diagnose settings, disk, clock, network, gateway, authtoken, domains and upstreams')
    .option('--json', 'Print the findings as JSON')
    .option('--service', 'Diagnose the systemd service, with its settings')
    .action(async (options) => (await import('./doctor.ts')).doctor(options));
  command
    .command('page')
    .description('Show where the agent’s page is, with a link and a QR code that sign a browser in')
    .option('--json', 'Print the addresses as JSON')
    .action(async (options) => (await import('./page.ts')).showPage(options));
  command
    .command('health')
    .description('Check that the agent on this device is alive, for containers and scripts')
    .option('--json', 'Print the API’s response')
    .action(async (options) => (await import('./health.ts')).health(options));
  examples(command.command('join'), 'join -', 'join - --name cabinet-7')
    .description('Join a site with a code: enrol this device, write its settings and start the agent')
    .argument('[code]', 'code of device-agent gateway invite; - for standard input (default: the one of the last time)')
    .option('-n, --name <name>', 'Name of the device at its site (default: its hostname)')
    .option('--no-service', 'Settings and data in the current folder, and the agent in the foreground')
    .option('--json', 'Print the device as a line of JSON once it has joined')
    .action(async (code: string | undefined, options) => (await import('./join.ts')).join(code ?? null, options));
  addGatewayCommand(command, {
    run: async () => (await import('./gateway/gateway-run.ts')).runGateway(),
    settings: () => gatewaySettings('data'),
  });
  addServiceCommand(command);
  addUpdateCommand(command);
  addSetupCommand(command, loadManagementSettings);
  command
    .command('completion')
    .description('Print the script that completes commands and options in a shell')
    .addArgument(new Argument('<shell>', 'the shell').choices(['bash', 'zsh', 'fish']))
    .addHelpText('after', '\nAdd to ~/.bashrc: source <(device-agent completion bash)')
    .action(async (shell) => {
      const { completionScript } = await import('./completion.ts');
      print(completionScript(command, shell).trimEnd());
    });
  const exitCodes = Object.entries(EXIT_CODES).map(([code, meaning]) => `  ${code}  ${meaning}`);
  command.addHelpText(
    'after',
    `
Exit codes:
${exitCodes.join('\n')}

Settings come from the environment and from .env in the current folder; docs/settings.md lists them.`,
  );
  pointToHelp(command, ownCommand(''));
  return command;
}

function versionText(): string {
  return `${VERSION} (${COMMIT === null ? 'built without git, commit unknown' : `commit ${COMMIT}`})`;
}

/** Makes usage errors point to the command's help; those of the default command point to its parent's. */
function pointToHelp(command: Command, line: string): void {
  command.showHelpAfterError(`(run ${line} --help for usage)`);
  if (command.commands.length > 0) command.helpCommand('help [command]', 'Show help for a command');
  for (const each of command.commands) pointToHelp(each, each.name() === 'run' ? line : `${line} ${each.name()}`);
}

function addUpdateCommand(program: Command): void {
  examples(
    program.command('update'),
    'update --check',
    'update',
    'update --to 1.2.3',
    'update --from /media/usb/device-agent',
  )
    .description(
      'Update agent and gateway of this machine to another release; go back automatically if that does not work',
    )
    .option('--check', 'Only say whether there is a newer release')
    .option('--to <version>', 'This version, also an older one, or one that was given up before')
    .addOption(
      new Option('--channel <channel>', 'Channel of the newest release').choices(['stable', 'beta']).default('stable'),
    )
    .option(
      '--from <place>',
      'https URL or folder with releases; gateway: the one of this device (default: AGENT_UPDATE_FROM)',
    )
    .option('--json', 'Print the result as JSON')
    .addOption(new Option('--automatic').hideHelp())
    .addOption(new Option('--continue').hideHelp())
    .action(async (options) => (await import('./update.ts')).update(options));
}

function addServiceCommand(program: Command): void {
  const service = program.command('service').description('Run the agent or the gateway as a systemd service');
  const load = () => import('./service-commands.ts');
  service
    .command('install')
    .description('Install or update the service; start it now and at boot')
    .option('--gateway', 'The standalone gateway instead of the agent')
    .option('--json', 'Print the result as JSON')
    .action(async (options) => (await load()).install(options));
  service
    .command('uninstall')
    .description('Stop and remove the service; keep settings and data')
    .option('--gateway', 'The standalone gateway instead of the agent')
    .option('--purge', 'Also delete settings, authtoken and data')
    .option('--yes', 'Do not ask before --purge deletes a gateway')
    .option('--json', 'Print the result as JSON')
    .action(async (options) => (await load()).uninstall(options));
  service
    .command('status')
    .description('Show the state of the service; exit code 0: running, 3: not running, 4: not installed')
    .option('--gateway', 'The standalone gateway instead of the agent')
    .option('--json', 'Print the state as JSON')
    .action(async (options) => (await load()).serviceStatus(options));
}
