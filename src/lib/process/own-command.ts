import { readFileSync, realpathSync } from 'node:fs';
import { delimiter, isAbsolute, join, relative } from 'node:path';
import { printable } from '../terminal-text.ts';

const NAME = 'device-agent';

/** How the program was started. */
export interface Start {
  env: NodeJS.ProcessEnv;
  /** Path of Node.js, then that of the program. */
  argv: readonly string[];
  folder: string;
  isRoot: boolean;
}

/** What sudo searches for programs, on Debian and others. */
const ROOT_PATH = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];

/** Programs that run those of an npm package, and say so in the environment. */
const RUNNERS: Readonly<Record<string, string>> = { npm: 'npx', pnpm: 'pnpm exec', yarn: 'yarn', bun: 'bunx' };

/**
 * A command of this program as the person who started it can type it: `device-agent` where a shell finds that, else for
 * example `npx device-agent`, `npx ./device-agent-0.1.0.tgz` or `node dist/cli.js`. A container cannot know; its image says it in DEVICE_AGENT_COMMAND.
 *
 * @param args for a shell, such as `http 8001`
 */
export function ownCommand(args: string, start: Start = thisStart()): string {
  return [typed(start), args].filter(Boolean).join(' ');
}

/** The same for a command that needs root: with sudo, unless the person is root, and full paths where sudo needs them. */
export function rootCommand(args: string, start: Start = thisStart()): string {
  const isContainer = Boolean(start.env.DEVICE_AGENT_COMMAND);
  if (start.isRoot || isContainer) return ownCommand(args, start);
  const found = installedIn(start);
  const program = found !== null && ROOT_PATH.includes(found) ? NAME : start.argv.map(shellWord).join(' ');
  return ['sudo', program, args].filter(Boolean).join(' ');
}

/** A word of a command line as a shell reads it. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function thisStart(): Start {
  return {
    env: process.env,
    argv: [process.execPath, process.argv[1] ?? ''],
    folder: process.cwd(),
    // With sudo, the person is somebody else.
    isRoot: process.geteuid?.() === 0 && !process.env.SUDO_USER,
  };
}

function typed({ env, argv, folder }: Start): string {
  if (env.DEVICE_AGENT_COMMAND) return printable(env.DEVICE_AGENT_COMMAND);
  const [runner = ''] = (env.npm_config_user_agent ?? '').split('/');
  // Before the search: a runner adds a folder to PATH that the person's shell does not have.
  const prefix = RUNNERS[runner];
  const [, program = ''] = argv;
  if (prefix !== undefined) return `${prefix} ${givenToNpx(program) ?? NAME}`;
  if (installedIn({ env, argv }) !== null) return NAME;
  const near = relative(folder, program);
  return `node ${shellWord(near.startsWith('..') || isAbsolute(near) ? program : near)}`;
}

/**
 * The package that npx was told to fetch, such as a file. Its name alone would lead to what the registry has by that name.
 *
 * @returns null when the program is in the project, or npx does not say
 */
function givenToNpx(program: string): string | null {
  const [, folder] = /^(.*\/_npx\/[^/]+)\/node_modules\//.exec(program) ?? [];
  if (folder === undefined) return null;
  try {
    const [given] = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))._npx.packages;
    return typeof given === 'string' ? shellWord(printable(given)) : null;
  } catch {
    return null;
  }
}

/** The folder in PATH where a shell finds this program first; null: it finds none, or another one. */
function installedIn({ env, argv: [, program = ''] }: Pick<Start, 'env' | 'argv'>): string | null {
  for (const folder of (env.PATH ?? '').split(delimiter)) {
    const found = folder === '' ? null : realPath(join(folder, NAME));
    if (found !== null) return found === realPath(program) ? folder : null;
  }
  return null;
}

function realPath(path: string): string | null {
  try {
    return realpathSync(path);
  } catch {
    return null; // no such file
  }
}
