import type { TestProject } from 'vitest/node';
import { buildIfStale } from '../../scripts/build.js';

/** Builds `dist` before every run, also in watch mode, when a source file is newer. */
export function setup(project: TestProject): void {
  buildIfStale();
  project.onTestsRerun(async () => buildIfStale());
}
