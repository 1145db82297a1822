import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const page = readFileSync('docs/architecture.md', 'utf8');
const named = [...page.matchAll(/`(src\/[^`]+)`/g)].map(([, path = '']) => path);

it('docs/architecture.md names only files and folders that exist', () => {
  expect(named.length).toBeGreaterThan(60);
  expect(named.filter((path) => !existsSync(path))).toEqual([]);
});

it('docs/architecture.md names every folder of src down to the subjects of agent, gateway and edge', () => {
  const folders = ['src', 'src/agent', 'src/gateway', 'src/gateway/edge'].flatMap((parent) =>
    readdirSync(parent, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => join(parent, entry.name)),
  );
  expect(folders.filter((folder) => !page.includes(`\`${folder}\``))).toEqual([]);
});

it('docs/architecture.md answers ten questions or more on where to change what', () => {
  const [, table = ''] = /## Where to change what\n([\s\S]*?)\n## /.exec(page) ?? [];
  const rows = [...table.matchAll(/^\| Where .*\? \| (.*) \|$/gm)];
  expect(rows.length).toBeGreaterThanOrEqual(10);
  for (const [, answer = ''] of rows) expect(answer).toMatch(/`src\/[^`]+\.tsx?`/);
});
