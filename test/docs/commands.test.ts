import { readdirSync, readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { expect, it } from 'vitest';
import { buildProgram } from '../../src/commands/program.ts';

const PAGES = ['README.md', ...readdirSync('docs').map((file) => `docs/${file}`)].filter(
  (file) => file.endsWith('.md') && file !== 'docs/cli.md',
);
/** What ends a command in a shell. */
const SHELL_ENDS = /\s(?:#|\||&&|>|2>|;)(?:\s|$)|[`)]|;$/;

/** Behind the prompt, a pipe, or what else begins a command; not the name of a service behind other commands. */
const COMMAND = /^\s*(?:\$ )?(?:.*(?:\||\(|&&) *)?(?:[A-Z_]+=\S+ +)*(?:sudo )?(?:npx )?device-agent (\S.*)$/;

const program = buildProgram();

/** The commands of a page's blocks of shell, and those between backticks. */
function commandsIn(page: string): string[] {
  const text = page.replace(/\\\n\s*/g, '');
  const blocks = [...text.matchAll(/^ *```(?:sh|)\n([\s\S]*?)^ *```/gm)].flatMap(([, block = '']) => block.split('\n'));
  const spans = [...text.replace(/^ *```[\s\S]*?^ *```/gm, '').matchAll(/`([^`\n]+)`/g)].map(([, span = '']) => span);
  return [...blocks, ...spans]
    .map((line) => COMMAND.exec(line)?.[1]?.split(SHELL_ENDS)[0]?.trim() ?? '')
    .filter((rest) => /^(?:-|[a-z])/.test(rest));
}

/** What is wrong with a command; null: it is one of the program's, with options that this has. */
function problemOf(line: string): string | null {
  let command: Command = program;
  const words = line.match(/(?:'[^']*'|"[^"]*"|\S)+/g) ?? [];
  for (const word of words) {
    const inner = command.commands.find((each) => each.name() === word || each.aliases().includes(word));
    if (inner) command = inner;
    else if (/^-./.test(word)) {
      const name = word.split('=')[0];
      const known = [...command.options, ...program.options].flatMap(({ short, long }) => [short, long]);
      if (!known.includes(name) && name !== '--help' && name !== '-h') return `${command.name()} has no ${name}`;
    } else if (command.commands.length > 0 && command.registeredArguments.length === 0) {
      return `${command.name()} has no command ${word}`;
    }
  }
  return null;
}

const commands = PAGES.map((file) => [file, commandsIn(readFileSync(file, 'utf8'))] as const).filter(
  ([, lines]) => lines.length > 0,
);

it.each(commands)('%s names commands that exist, with their options', (_, lines) => {
  expect(lines.map((line) => [line, problemOf(line)]).filter(([, problem]) => problem !== null)).toEqual([]);
});

it('finds them', () => {
  expect(commands.flatMap(([, lines]) => lines).length).toBeGreaterThan(100);
});
