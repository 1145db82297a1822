import { type Command, InvalidArgumentError } from 'commander';
import { closest } from '../lib/closest.ts';
import type { Variable } from '../settings/variable-kinds.ts';

/** Adds the command that runs without a name. Commander would pass it a misspelt command as an argument. */
export function defaultCommand(parent: Command, name: string): Command {
  return parent
    .command(name, { isDefault: true })
    .allowExcessArguments()
    .allowUnknownOption()
    .hook('preAction', (command) => {
      const [unknown] = command.args;
      if (unknown !== undefined) refuse(parent, command, unknown);
    });
}

/** Ends with a usage error that suggests the command or option that was probably meant. */
export function refuse(parent: Command, command: Command, unknown: string): never {
  const isOption = unknown.startsWith('-');
  const known = isOption
    ? [...command.options, ...parent.options].flatMap(({ long }) => long ?? [])
    : parent.commands.flatMap((each) => [each.name(), ...each.aliases()]);
  const meant = closest(unknown, known);
  const hint = meant === null ? '' : `\n(Did you mean ${meant}?)`;
  return parent.error(`error: unknown ${isOption ? 'option' : 'command'} '${unknown}'${hint}`);
}

/** Parses an option like the setting of the same kind. */
export function parsed<T>({ parse, allowed }: Variable<T>, text: string): T {
  try {
    return parse(text);
  } catch {
    throw new InvalidArgumentError(`Allowed: ${allowed}.`);
  }
}
