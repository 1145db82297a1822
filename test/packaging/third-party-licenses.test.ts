import { mkdirSync, realpathSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { rolldown } from 'rolldown';
import { expect, it } from 'vitest';
import { isPermitted, thirdPartyLicenses } from '../../packaging/third-party-licenses.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const TERMS = 'Copyright (c) 2026 Somebody\n\nTHE SOFTWARE IS PROVIDED "AS IS".';
const CODE = "export const name = 'some code';\n";

interface FakePackage {
  license?: string;
  files: Record<string, string>;
  /** Whether the program imports it without using its exports. */
  unused?: boolean;
}

/** The build's output for a program with these packages. */
async function licencesOf(packages: Record<string, FakePackage>): Promise<string> {
  const home = realpathSync(temporaryFolder());
  const write = (path: string, text: string) => {
    mkdirSync(dirname(join(home, path)), { recursive: true });
    writeFileSync(join(home, path), text);
  };
  write('package.json', '{ "name": "program", "version": "1.0.0" }');
  write('LICENSE', 'The whole of Apache-2.0');
  for (const [name, { license, files }] of Object.entries(packages)) {
    const manifest = { name, version: '1.2.3', license, main: 'lib/index.js', sideEffects: false };
    const all = { 'package.json': JSON.stringify(manifest), 'lib/package.json': '{ "type": "module" }', ...files };
    for (const [path, text] of Object.entries({ 'lib/index.js': CODE, ...all }))
      write(`node_modules/${name}/${path}`, text);
  }
  const lines = Object.entries(packages).map(([name, { unused }], index) =>
    unused ? `import { name as name${index} } from '${name}';` : `export { name as name${index} } from '${name}';`,
  );
  write('main.js', lines.join('\n'));
  const build = await rolldown({ cwd: home, input: 'main.js', plugins: [thirdPartyLicenses(home)] });
  const { output } = await build.generate();
  const found = output.find(({ fileName }) => fileName === 'THIRD-PARTY-LICENSES.txt');
  return found?.type === 'asset' ? String(found.source) : '';
}

it('THIRD-PARTY-LICENSES.txt has the licence of each bundled package, and each text once', async () => {
  const text = await licencesOf({
    one: { license: 'MIT', files: { LICENSE: TERMS } },
    two: { license: 'MIT', files: { 'license.md': TERMS } },
    notice: { license: 'Apache-2.0', files: { LICENSE: 'AS IS', 'NOTICE.txt': 'made by somebody else' } },
    unused: { license: 'GPL-3.0-only', files: {}, unused: true },
  });
  expect(text).toContain('one 1.2.3 (MIT)\ntwo 1.2.3 (MIT)\n\nCopyright (c) 2026 Somebody\n');
  expect(text.split('Copyright')).toHaveLength(2);
  expect(text).toContain('notice 1.2.3 (Apache-2.0)\n\nAS IS\n\nmade by somebody else\n');
  expect(text).not.toMatch(/unused|program 1/);
});

it('a licence in a README or in the sources counts when the package has no licence file', async () => {
  const text = await licencesOf({
    readme: { license: 'MIT', files: { 'README.md': `# It\n\nLicense\n-------\n\n${TERMS}\n\n## More\n\nOf it.` } },
    sources: {
      license: 'Apache-2.0',
      files: { 'lib/index.js': `// Copyright Someone\n//\n// Distributed AS IS.\n${CODE}` },
    },
  });
  expect(text).toContain(`readme 1.2.3 (MIT)\n\n${TERMS}\n\n---`);
  expect(text).toContain(
    'sources 1.2.3 (Apache-2.0)\n\nCopyright Someone\n\nDistributed AS IS.\n\nThe whole of Apache-2.0\n',
  );
});

it('the build fails for a licence that is not permitted or has no text', async () => {
  const gpl = licencesOf({ copyleft: { license: 'GPL-3.0-only', files: { LICENSE: TERMS } } });
  await expect(gpl).rejects.toThrow(/copyleft 1\.2\.3 is under GPL-3\.0-only, which is not on the list/);
  const unstated = licencesOf({ unstated: { files: { LICENSE: TERMS } } });
  await expect(unstated).rejects.toThrow(/unstated 1\.2\.3 is under no stated licence/);
  const mention = licencesOf({ mention: { license: 'MIT', files: { 'README.md': '## License\n\nMIT' } } });
  await expect(mention).rejects.toThrow(/mention 1\.2\.3 comes without the text of its licence \(MIT\)/);
});

it.each([
  ['MIT', true],
  ['(BSD-3-Clause OR GPL-2.0)', true],
  ['(Apache-2.0 AND BSD-3-Clause)', true],
  ['MIT AND GPL-2.0', false],
  ['(GPL-2.0 OR MIT) AND (GPL-2.0 OR MIT)', false],
  ['SEE LICENSE IN LICENSE.txt', false],
])('isPermitted(%s) is %s', (expression, permitted) => {
  expect(isPermitted(expression)).toBe(permitted);
});
