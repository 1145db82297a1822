import { hasErrno, messageOf, OperatorError } from './lib/errors.ts';
import { printableError } from './lib/terminal-text.ts';
import { hasGatewayCode } from './packaged.ts';

/** Prints one line that says what to do; with `--debug`, the stack trace. */
function report(error: unknown, debug: boolean): number {
  const known = error instanceof OperatorError;
  const shown = debug && error instanceof Error ? (error.stack ?? error.message) : messageOf(error);
  process.stderr.write(`device-agent: ${printableError(shown)}\n`);
  if (!known && !debug) process.stderr.write('device-agent: unexpected error; run with --debug for the stack trace\n');
  return known ? error.exitCode : 1;
}

/** A reader that closes its end early, such as `head`, is no failure: the command continues. */
function reportBrokenOutput(): void {
  process.stderr.on('error', () => {}); // nowhere else to report it
  process.stdout.on('error', (error) => {
    if (hasErrno(error, 'EPIPE')) return;
    process.exitCode = report(new OperatorError(`standard output: ${messageOf(error)}`), false);
  });
}

/** What services run. The code that reads other command lines would take memory and time from them. */
const SERVICES = new Map([
  ['run', async () => (await import('./commands/run.ts')).run()],
  ['gateway', async () => (await import('./commands/gateway/gateway-run.ts')).runGateway()],
]);

async function runCommand([name = 'run', ...rest]: string[]): Promise<void> {
  const service = rest.length === 0 ? SERVICES.get(name) : undefined;
  if (service) {
    await (await import('./commands/until-stopped.ts')).pauseAfterFailedStarts();
    return service();
  }
  const { runProgram } = await import('./commands/program.ts');
  await runProgram();
}

/** Says which package has the code, where it is one of its own. */
function withMissingPackage(error: unknown): unknown {
  if (!hasErrno(error, 'ERR_MODULE_NOT_FOUND') || hasGatewayCode()) return error;
  return new OperatorError('the gateway is not installed: sudo apt install device-agent-gateway', 1, { cause: error });
}

reportBrokenOutput();
try {
  await runCommand(process.argv.slice(2));
} catch (error) {
  process.exitCode = report(withMissingPackage(error), process.argv.includes('--debug'));
}
