import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { firstOf, type Missing, programMissing } from '../support/requirements.ts';
import { mustRun } from './program.ts';

const SOURCES = 'test/interop/agents';

/** How to build and start a program in `agents/`: an agent with the SDK of another language. */
interface Recipe {
  toolchain(): Missing;
  /** Builds it into an empty folder; needs a network. */
  build(folder: string, sources: string): Promise<unknown>;
  start(folder: string, program: string): Start;
}

/** A command, and what it needs in its environment. */
export interface Start {
  command: string[];
  env?: Record<string, string>;
}

const startProgram = (folder: string, program: string): Start => ({ command: [join(folder, program)] });

const RECIPES = {
  python: {
    toolchain: () => programMissing('python3', '-m', 'pip', '--version'),
    build: (folder, cwd) =>
      mustRun(['python3', '-m', 'pip', 'install', '--quiet', '--target', folder, '-r', 'requirements.txt'], { cwd }),
    start: (folder) => ({ command: ['python3', join(SOURCES, 'python/agent.py')], env: { PYTHONPATH: folder } }),
  },
  go: {
    toolchain: () => programMissing('go', 'version'),
    build: (folder, cwd) => mustRun(['go', 'build', '-o', `${folder}/`, './version1', './version2'], { cwd }),
    start: startProgram,
  },
  /** A version whose policies are objects. */
  javascript: {
    toolchain: () => programMissing('npm', '--version'),
    async build(folder, sources) {
      copyFileSync(join(sources, 'package.json'), join(folder, 'package.json'));
      await mustRun(['npm', 'install', '--ignore-scripts', '--no-audit'], { cwd: folder });
    },
    start: (folder) => ({
      command: [process.execPath, join(SOURCES, 'javascript/agent.cjs')],
      env: { SDK: join(folder, 'node_modules/@ngrok/ngrok') },
    }),
  },
  rust: {
    toolchain: () => programMissing('cargo', '--version'),
    async build(folder, cwd) {
      const target = join(folder, 'target');
      await mustRun(['cargo', 'build', '--locked', '--target-dir', target], { cwd });
      renameSync(join(target, 'debug/agent'), join(folder, 'agent'));
      rmSync(target, { recursive: true });
    },
    start: startProgram,
  },
} satisfies Record<string, Recipe>;

export type AgentName = keyof typeof RECIPES;
export const AGENT_NAMES = Object.keys(RECIPES) as AgentName[];

/** Why an agent cannot be started; null when it can. */
export function agentMissing(name: AgentName): Missing {
  if (existsSync(builtFolder(name))) return null;
  return firstOf(RECIPES[name].toolchain(), `npm run interop -- prepare ${name} has not run`);
}

/** @param program which one, of a language with several */
export function startOf(name: AgentName, program = 'agent'): Start {
  return RECIPES[name].start(builtFolder(name), program);
}

/**
 * Builds an agent, unless it is built already.
 *
 * @returns why it cannot be built on this machine; null when it is built
 */
export async function prepareAgent(name: AgentName): Promise<Missing> {
  const folder = builtFolder(name);
  if (existsSync(folder)) return null;
  const missing = RECIPES[name].toolchain();
  if (missing !== null) return missing;
  const unfinished = `${folder}.${process.pid}`;
  mkdirSync(unfinished, { recursive: true });
  try {
    await RECIPES[name].build(unfinished, sourcesOf(name));
    renameSync(unfinished, folder);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
  return null;
}

function sourcesOf(name: AgentName): string {
  return join(SOURCES, name);
}

/** A folder in the user's cache for what was built from these sources. */
function builtFolder(name: AgentName): string {
  const hash = createHash('sha256').update(`${process.platform} ${process.arch}`);
  const entries = readdirSync(sourcesOf(name), { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((file) => join(file.parentPath, file.name));
  for (const file of files.sort()) hash.update(readFileSync(file));
  const cache = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
  return join(cache, 'device-agent-sdks', `${name}-${hash.digest('hex').slice(0, 16)}`);
}
