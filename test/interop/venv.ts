import { join } from 'node:path';
import { mustRun } from './program.ts';

/** A Python environment with packages from PyPI, in a folder. */
export async function createVenv(folder: string, packages: string[]): Promise<void> {
  await mustRun(['python3', '-m', 'venv', join(folder, 'venv')], { cwd: folder });
  await mustRun([inVenv(folder, 'pip'), 'install', '--quiet', '--disable-pip-version-check', ...packages], {
    cwd: folder,
  });
}

/** The path of a program of the environment. */
export function inVenv(folder: string, program: string): string {
  return join(folder, 'venv/bin', program);
}
