import { CommanderError } from 'commander';
import { buildProgram } from './commands/program.ts';
import { hasErrno, messageOf, OperatorError } from './lib/errors.ts';

/** Prints one line that says what to do; with `--debug`, the stack trace. */
function report(error: unknown, debug: boolean): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
  const known = error instanceof OperatorError;
  const shown = debug && error instanceof Error ? (error.stack ?? error.message) : messageOf(error);
  process.stderr.write(`device-agent: ${shown}\n`);
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

reportBrokenOutput();
try {
  await buildProgram().parseAsync();
} catch (error) {
  process.exitCode = report(error, process.argv.includes('--debug'));
}
