import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const page = readFileSync('docs/agent-api.md', 'utf8');
const sources = readdirSync('src/agent', { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => readFileSync(join('src/agent', name), 'utf8'));
/** The table of codes and statuses in the source. */
const declared = [...sources.join('\n').matchAll(/^ {2}(ERR_AGENT_\w+): (\d{3}),$/gm)];

it('docs/agent-api.md lists every error code with its status, and no other', () => {
  expect(declared.length).toBeGreaterThan(20);
  const listed = [...page.matchAll(/^\| (\d{3}) \| `(ERR_AGENT_\w+)` \|/gm)].map(
    ([, status, code]) => `${code} ${status}`,
  );
  expect(listed.toSorted()).toEqual(declared.map(([, code, status]) => `${code} ${status}`).toSorted());
});
