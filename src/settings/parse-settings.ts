import { resolve } from 'node:path';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { gatherTexts, type Texts } from './setting-sources.ts';
import type { Variable } from './variable-kinds.ts';
import { type Parsed, VARIABLES } from './variables.ts';

/** Converts variables to a program's settings. Adds a line to `problems` for each problem. */
export type Assemble<T> = (values: Parsed, path: (value: string) => string, problems: string[]) => T;

/**
 * Reads the settings from all sources.
 *
 * @throws {OperatorError} exit code 2, with all problems
 */
export function loadWith<T>(assemble: Assemble<T>, env: NodeJS.ProcessEnv, folder: string): T {
  return parseSettings(assemble, gatherTexts(env, folder), folder);
}

/** Parses values that were already read; throws as {@link loadWith} does. */
export function parseSettings<T>(assemble: Assemble<T>, texts: Texts, folder: string): T {
  const problems: string[] = [];
  const values = parseVariables(texts, problems);
  const settings = assemble(values, (value) => resolve(folder, value), problems);
  if (problems.length > 0) {
    throw new OperatorError(`invalid settings:\n${problems.map((problem) => `  ${problem}`).join('\n')}`, 2);
  }
  return settings;
}

function parseVariables(texts: Texts, problems: string[]): Parsed {
  const parsed: Record<string, unknown> = {};
  for (const [name, variable] of Object.entries<Variable<unknown>>(VARIABLES)) {
    const value = texts[name] ?? variable.default;
    try {
      parsed[name] = value === null ? null : variable.parse(value);
    } catch (error) {
      parsed[name] = null;
      const shown = variable.secret ? '(not shown)' : JSON.stringify(value);
      problems.push(`${name}=${shown}: ${messageOf(error)}; allowed: ${variable.allowed}`);
    }
  }
  return parsed as Parsed;
}
