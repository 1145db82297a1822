import type { TestProject } from 'vitest/node';
import { buildIfStale } from '../../scripts/build.js';

/** Builds `dist` before a run, and before every further one in watch mode, when a source file is newer. */
export function setup(project: TestProject): void {
  buildIfStale();
  project.onTestsRerun(async () => buildIfStale());
}
