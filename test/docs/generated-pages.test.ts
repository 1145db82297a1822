import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { generatedPages } from '../../scripts/docs/generated-pages.ts';
import docsProgram from '../../scripts/docs/rolldown.config.ts';

it.each(Object.entries(generatedPages()))('%s is what npm run docs generates', (file, generated) => {
  expect(readFileSync(file, 'utf8')).toBe(generated);
});

it('npm run docs leaves dist alone, from which programs may run', () => {
  const { docs } = JSON.parse(readFileSync('package.json', 'utf8')).scripts;
  expect(docs).toMatch(/^rolldown -c scripts\/docs\/rolldown\.config\.ts /);
  expect(docsProgram.output).toMatchObject({ dir: 'build/docs' });
});
