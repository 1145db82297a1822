import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const page = readFileSync('docs/security.md', 'utf8');
const threats = page
  .split('\n## ')
  .filter((section) => section.startsWith('Threats '))
  .flatMap((section) => section.split('\n'))
  .filter((line) => /^\| (?!Threat |---)/.test(line));

it('docs/security.md names a test for every threat', () => {
  expect(threats.length).toBeGreaterThan(30);
  const withoutTest = threats.filter((row) => !/`test\/[^`]+\.test\.ts` *(, .*)?\|$/.test(row));
  expect(withoutTest).toEqual([]);
});

it('docs/security.md names only files that exist', () => {
  const named = [...page.matchAll(/`((?:test|src)\/[^`]+)`|\]\(([^)#]+\.md)\)/g)].map(
    ([, file, link]) => file ?? `docs/${link}`,
  );
  expect(named.filter((file) => !existsSync(file))).toEqual([]);
});

it('docs/security.md names every test of hostile input', () => {
  const files = readdirSync('test/hostile').filter((name) => name.endsWith('.test.ts'));
  expect(files.length).toBeGreaterThan(0);
  expect(files.filter((name) => !page.includes(`test/hostile/${name}`))).toEqual([]);
});
