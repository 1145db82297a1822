import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { compilePolicy } from '../../src/traffic-policy/engine.ts';

/** The policies of a page, also those in lists. */
const policiesOf = (page: string) =>
  [...readFileSync(page, 'utf8').matchAll(/^( *)```yaml\n([\s\S]*?)^ *```$/gm)].map(([, indent = '', text = '']) =>
    text.replace(new RegExp(`^${indent}`, 'gm'), ''),
  );

it.each([
  ['docs/sign-in.md', 5],
  ['docs/share-links.md', 2],
])('the policies of %s are valid', (page, count) => {
  const policies = policiesOf(page);
  expect(policies).toHaveLength(count);
  for (const policy of policies) expect(compilePolicy(policy, 'https').onHttpRequest).not.toBeNull();
});
