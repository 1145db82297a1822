#!/usr/bin/env node
import { setFlagsFromString } from 'node:v8';
import { Command, CommanderError } from 'commander';
import { addGatewayCommand } from './commands/gateway.ts';
import { addSetupCommand } from './commands/setup.ts';
import { hasErrno, messageOf, OperatorError } from './lib/errors.ts';
import { loadGatewayServerSettings } from './settings/gateway-settings.ts';
import { loadManagementSettings } from './settings/management-settings.ts';
import { VERSION } from './version.ts';

// What lives for one request fits in here. V8's own choice of 16 MiB costs a Pi 5 MiB of memory (measured) and no
// request/s; both flags are needed for it to take effect in a process that runs already.
setFlagsFromString('--max-semi-space-size=1');
setFlagsFromString('--semi-space-growth-factor=1');

/**
 * The command line. Each command's code is loaded only when that command runs: the agent's
 * memory holds nothing that only another command needs.
 */
function program(): Command {
  const command = new Command('device-agent')
    .description('Keeps tunnels from this device open, over ngrok’s network or a gateway of your own.')
    .version(VERSION)
    .option('--debug', 'show stack traces with errors')
    .exitOverride();
  defaultCommand(command, 'run')
    .description('run the agent in the foreground (what happens without a command)')
    .action(async () => (await import('./commands/run.ts')).run());
  command
    .command('doctor')
    .description('find out what is wrong: settings, disk, clock, network, gateway, authtoken, domains, upstreams')
    .option('--json', 'print the findings as JSON')
    .option('--service', 'look at the service of systemd, with its settings')
    .action(async (options) => (await import('./commands/doctor.ts')).doctor(options));
  command
    .command('health')
    .description('whether the agent on this device is alive, for containers and scripts: exit code 0, else 3')
    .action(async () => (await import('./commands/health.ts')).health());
  addTunnelsCommand(command);
  addGatewayCommand(command, {
    run: async () => (await import('./commands/gateway-run.ts')).runGateway(),
    location: loadGatewayServerSettings,
  });
  addServiceCommand(command);
  addSetupCommand(command, loadManagementSettings);
  command.addHelpText(
    'after',
    `
Settings come from the environment and from .env in the current folder; README.md lists them.
Exit codes: 0 done, 1 failed or refused, 2 wrong usage or settings, 3 agent or API cannot be reached,
4 no such tunnel or service, 5 not ready in time.`,
  );
  pointToHelp(command, 'device-agent');
  return command;
}

/** Each command's errors name its own help; what runs without a name stands for the whole. */
function pointToHelp(command: Command, line: string): void {
  command.showHelpAfterError(`(${line} --help shows what there is)`);
  for (const each of command.commands) pointToHelp(each, each.name() === 'run' ? line : `${line} ${each.name()}`);
}

/** What runs when no command is named; it would take a misspelt one for an argument of its own. */
function defaultCommand(parent: Command, name: string): Command {
  return parent
    .command(name, { isDefault: true })
    .allowExcessArguments()
    .hook('preAction', ({ args: [unknown] }) => {
      if (unknown !== undefined) parent.error(`error: unknown command '${unknown}'`);
    });
}

function addTunnelsCommand(program: Command): void {
  const tunnels = program
    .command('tunnels')
    .description('see and change the tunnels of the agent that runs on this device');
  const load = () => import('./commands/tunnels.ts');
  defaultCommand(tunnels, 'list')
    .description('list all tunnels')
    .option('--json', 'print what the API answers')
    .action(async (options) => (await load()).listTunnels(options));
  tunnels
    .command('start')
    .description('start a tunnel')
    .argument('<forwards-to>', 'where traffic goes: a port, host:port, http(s)://host:port or unix:/path')
    .option('-d, --domain <hostname>', 'public hostname; left out, the gateway chooses one')
    .option('-p, --protocol <protocol>', 'http, tcp or tls', 'http')
    .option('--policy <file>', 'JSON file with the policy; left out, the default policies apply')
    .option('--json', 'print what the API answers')
    .action(async (forwardsTo, options) => (await load()).startTunnel(forwardsTo, options));
  tunnels
    .command('show')
    .description('show one tunnel and its state')
    .argument('<tunnel>', 'first label, host or URL of the tunnel')
    .option('--json', 'print what the API answers')
    .action(async (tunnel, options) => (await load()).showTunnel(tunnel, options));
  tunnels
    .command('delete')
    .description('close a tunnel and forget it')
    .argument('<tunnel>', 'first label, host or URL of the tunnel')
    .action(async (tunnel) => (await load()).deleteTunnel(tunnel));
  const loadTransfer = () => import('./commands/tunnels-transfer.ts');
  tunnels
    .command('export')
    .description('write the tunnels as they are on the disk, whether the agent runs or not')
    .argument('[file]', '- or left out: standard output')
    .action(async (file) => (await loadTransfer()).exportTunnels(file));
  tunnels
    .command('import')
    .description('make the tunnels of a file that are not there yet')
    .argument('<file>', 'an export, or what ngrok’s sample agent in Python keeps; -: standard input')
    .option('--json', 'print what became of each as JSON')
    .action(async (file, options) => (await loadTransfer()).importTunnels(file, options));
}

function addServiceCommand(program: Command): void {
  const service = program.command('service').description('run it as a service of systemd, from boot on');
  const load = () => import('./commands/service.ts');
  service
    .command('install')
    .description('write the unit and its user, start it, now and at boot; or bring it up to date')
    .option('--gateway', 'the gateway by itself, not the agent')
    .action(async (options) => (await load()).install(options));
  service
    .command('uninstall')
    .description('stop it and remove it; settings and data stay')
    .option('--gateway', 'the gateway by itself, not the agent')
    .option('--purge', 'remove settings, authtoken and data, too')
    .action(async (options) => (await load()).uninstall(options));
  service
    .command('status')
    .description('how it is; exit code 0 when it runs, 3 when it does not, 4 when it is not installed')
    .option('--gateway', 'the gateway by itself, not the agent')
    .action(async (options) => (await load()).status(options));
}

/** Prints one line that says what to do, or with `--debug` all there is to know. */
function report(error: unknown, debug: boolean): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
  const known = error instanceof OperatorError;
  const shown = debug && error instanceof Error ? (error.stack ?? error.message) : messageOf(error);
  process.stderr.write(`device-agent: ${shown}\n`);
  if (!known && !debug)
    process.stderr.write('device-agent: this was not expected; --debug shows where it comes from\n');
  return known ? error.exitCode : 1;
}

/** A reader that has seen enough, such as `head`, is no failure: what is under way goes on. */
function reportBrokenOutput(): void {
  process.stderr.on('error', () => {}); // there is no third place to say it
  process.stdout.on('error', (error) => {
    if (hasErrno(error, 'EPIPE')) return;
    process.exitCode = report(new OperatorError(`standard output: ${messageOf(error)}`), false);
  });
}

reportBrokenOutput();
try {
  await program().parseAsync();
} catch (error) {
  process.exitCode = report(error, process.argv.includes('--debug'));
}
