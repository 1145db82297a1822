import type { Command } from 'commander';
import { buildProgram, EXIT_CODES } from '../../src/commands/program.ts';
import { GENERATED, table } from './markdown.ts';

/** docs/cli.md: every command with its arguments and options. */
export function cliPage(): string {
  const exitCodes = Object.entries(EXIT_CODES);
  return [
    '# Command line',
    GENERATED,
    'Errors go to standard error as one line. `--debug` adds the stack trace.',
    table(['Exit code', 'Meaning'], exitCodes),
    ...sections(buildProgram(), ''),
  ]
    .join('\n\n')
    .concat('\n');
}

function sections(command: Command, parents: string): string[] {
  const name = `${parents}${command.name()}`;
  const help = command.createHelp();
  const usage = `${parents}${help
    .commandUsage(command)
    .split(' ')
    .slice(parents.split(' ').length - 1)
    .join(' ')}`;
  const subcommands = command.commands.filter((each) => each.name() !== 'help');
  const args = help.visibleArguments(command).map((each) => [`\`${help.argumentTerm(each)}\``, each.description]);
  const options = help
    .visibleOptions(command)
    .filter(({ long }) => long !== '--help')
    .map((each) => [`\`${help.optionTerm(each)}\``, help.optionDescription(each)]);
  return [
    `## \`${name}\``,
    sentence(help.commandDescription(command)),
    `\`\`\`sh\n${usage}\n\`\`\``,
    ...(args.length > 0 ? [table(['Argument', 'Meaning'], args)] : []),
    ...(options.length > 0 ? [table(['Option', 'Meaning'], options)] : []),
    ...subcommands.flatMap((each) => sections(each, `${name} `)),
  ];
}

const sentence = (text: string): string => (text.endsWith('.') ? text : `${text}.`);
