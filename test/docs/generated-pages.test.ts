import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { generatedPages } from '../../scripts/docs/generated-pages.ts';

it.each(Object.entries(generatedPages()))('%s is what npm run docs generates', (file, generated) => {
  expect(readFileSync(file, 'utf8')).toBe(generated);
});
