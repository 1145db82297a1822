import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { OperatorError } from '../../src/lib/errors.ts';
import { loadDefaultPolicies } from '../../src/traffic-policy/load-default-policies.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

it('the default policies come with the program', async () => {
  const packaged = fileURLToPath(new URL('../../defaults/policies.json', import.meta.url));
  expect(await loadDefaultPolicies(packaged)).toMatchObject({ inbound: [], outbound: [{ name: 'Security headers' }] });
});

it.each([
  ['{\n  "inbound": [,]\n}', 'not JSON, line 2, column 15: expected a value or ]'],
  ['', 'not JSON, line 1, column 1'],
  ['{"inbound":[{"actions":[]}]}', 'inbound[0].actions: a rule needs at least one action'],
  ['{"inbuond":[]}', 'inbuond: unknown member "inbuond"; supported: enabled, inbound'],
  ['[]', '(document): '],
])('default policies %j stop the start with file, place and reason', async (text, reason) => {
  const path = join(temporaryFolder(), 'policies.json');
  await writeFile(path, text);
  const loading = loadDefaultPolicies(path);
  await expect(loading).rejects.toThrow(OperatorError);
  await expect(loading).rejects.toThrow(`from ${path}: ${reason}`);
});

it('missing default policies stop the start', async () => {
  await expect(loadDefaultPolicies('/nowhere/policies.json')).rejects.toThrow(/\/nowhere\/policies.json.*ENOENT/);
});
