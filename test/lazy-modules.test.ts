import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { expect, it } from 'vitest';

const DIST = fileURLToPath(new URL('../dist/', import.meta.url));
/** Runs the command line as soon as it is loaded. */
const PROGRAM = /^main-/;

/** The parts of the packed program that it loads when it needs them. */
function lazyModules(): string[] {
  const chunks = readdirSync(DIST).filter((name) => name.endsWith('.js'));
  const loads = chunks.flatMap((name) => [
    ...readFileSync(join(DIST, name), 'utf8').matchAll(/\bimport\(['"`]\.\/([^'"`]+)['"`]\)/g),
  ]);
  return [...new Set(loads.map(([, name = '']) => name))].filter((name) => !PROGRAM.test(name));
}

it('each part of the program that is loaded later loads without any other', async () => {
  const all = lazyModules();
  expect(all.length).toBeGreaterThan(40);
  const problems: string[] = [];
  const queue = [...all];
  const loadSome = async () => {
    for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
      // A thread has modules and globals of its own.
      const worker = new Worker('import(require("node:worker_threads").workerData)', {
        eval: true,
        workerData: new URL(name, `file://${DIST}`).href,
      });
      await once(worker, 'exit').catch((error: unknown) => problems.push(`${name}: ${error}`));
    }
  };
  await Promise.all(Array.from({ length: 4 }, loadSome));
  expect(problems).toEqual([]);
});
