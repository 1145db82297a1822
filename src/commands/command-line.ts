import { type Command, InvalidArgumentError, Option } from 'commander';
import { closest } from '../lib/closest.ts';
import { OperatorError } from '../lib/errors.ts';
import type { Variable } from '../settings/variable-kinds.ts';

/** Adds the command that runs without a name. Commander would pass it a misspelt command as an argument. */
export function defaultCommand(parent: Command, name: string): Command {
  return parent
    .command(name, { isDefault: true })
    .allowExcessArguments()
    .allowUnknownOption()
    .hook('preAction', (command) => {
      const [unknown] = command.args;
      if (unknown !== undefined) refuseUsage(parent, command, unknown);
    });
}

/** Ends with a usage error that suggests the command or option that was probably meant. */
export function refuseUsage(parent: Command, command: Command, unknown: string): never {
  const isOption = unknown.startsWith('-');
  const known = isOption
    ? [...command.options, ...parent.options].flatMap(({ long }) => long ?? [])
    : parent.commands.flatMap((each) => [each.name(), ...each.aliases()]);
  const meant = closest(unknown, known);
  const hint = meant === null ? '' : `\n(Did you mean ${meant}?)`;
  return parent.error(`error: unknown ${isOption ? 'option' : 'command'} '${unknown}'${hint}`);
}

/** Adds lines to the end of a command's help. */
export function examples(command: Command, ...lines: string[]): Command {
  return command.addHelpText('after', `\nExamples:\n${lines.map((line) => `  device-agent ${line}`).join('\n')}`);
}

/** Parses an option like the setting of the same kind. */
export function parsedOption<T>({ parse, allowed }: Variable<T>, text: string): T {
  try {
    return parse(text);
  } catch {
    throw new InvalidArgumentError(`Allowed: ${allowed}.`);
  }
}

/** Milliseconds of the units of durations. */
export const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** The options of commands that draw a history. */
export function historyOptions(command: Command): Command {
  return command
    .option('--since <time>', 'A duration such as 24h or 30d, or a time such as 2026-11-26 (default: 24h)')
    .option('--until <time>', 'The same (default: now)')
    .addOption(new Option('--step <length>', 'The length of each point').choices(['minute', 'hour', 'day']))
    .option('--json', 'Print JSON');
}

/** Parses a number from 1 to a million. */
export function countOption(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1 || value > 1_000_000) {
    throw new InvalidArgumentError('Must be a number from 1 to 1000000.');
  }
  return value;
}

/** The time that an option means: itself, or so long ago. @throws {OperatorError} exit code 2 for anything else */
export function timeOf(option: 'since' | 'until', text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const [, count, unit = ''] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  const at = count === undefined ? Date.parse(text) : Date.now() - Number(count) * (UNITS[unit] ?? 0);
  if (Number.isNaN(at)) {
    throw new OperatorError(
      `--${option}: "${text}" is neither a duration such as 24h nor a time such as 2026-11-26`,
      2,
    );
  }
  return new Date(at).toISOString();
}

/** @returns the milliseconds of minutes, hours or days, such as 30m, 12h or 7d */
export function duration(text: string): number {
  const [, number = '', unit = ''] = /^(\d{1,5})([mhd])$/.exec(text) ?? [];
  const value = Number(number) * (UNITS[unit] ?? 0);
  if (value > 0) return value;
  throw new InvalidArgumentError('Must be minutes, hours or days, such as 30m, 12h or 7d.');
}
