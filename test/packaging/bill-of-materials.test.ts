import { mkdirSync, realpathSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { rolldown } from 'rolldown';
import { expect, it } from 'vitest';
import { billOfMaterials } from '../../packaging/bill-of-materials.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

interface Bill {
  metadata: { component: { purl: string } };
  components: { purl: string; scope: string; hashes?: { alg: string; content: string }[]; licenses?: object[] }[];
  dependencies: { ref: string; dependsOn: string[] }[];
}

it('sbom.cdx.json lists what is bundled and what npm installs, but nothing that only builds', async () => {
  const home = realpathSync(temporaryFolder());
  const write = (path: string, content: string | object) => {
    mkdirSync(dirname(join(home, path)), { recursive: true });
    writeFileSync(join(home, path), typeof content === 'string' ? content : JSON.stringify(content));
  };
  const program = { name: 'program', version: '1.0.0', license: 'Apache-2.0' };
  const locked = { version: '1.2.3', license: 'MIT', integrity: 'sha512-AAEC' };
  write('package.json', program);
  write('package-lock.json', {
    packages: {
      '': program,
      'node_modules/@a/bundled': { ...locked, dev: true },
      'node_modules/native': locked,
      'node_modules/native-linux': { ...locked, optional: true },
      'node_modules/tool': { ...locked, dev: true },
      'node_modules/tool-linux': { ...locked, devOptional: true },
    },
  });
  write('node_modules/@a/bundled/package.json', { name: '@a/bundled', version: '1.2.3', license: 'MIT' });
  write('node_modules/@a/bundled/index.js', 'export const name = 1;');
  write('main.js', "export { name } from '@a/bundled';");
  const build = await rolldown({ cwd: home, input: 'main.js', plugins: [billOfMaterials(home)] });
  const { output } = await build.generate();
  const found = output.find(({ fileName }) => fileName === 'sbom.cdx.json');
  const bill: Bill = JSON.parse(found?.type === 'asset' ? String(found.source) : '');
  const refs = ['pkg:npm/%40a/bundled@1.2.3', 'pkg:npm/native-linux@1.2.3', 'pkg:npm/native@1.2.3'];
  expect(bill.components.map(({ purl, scope }) => [purl, scope])).toEqual([
    [refs[0], 'required'],
    [refs[1], 'optional'],
    [refs[2], 'required'],
  ]);
  expect(bill.components[0]).toMatchObject({
    hashes: [{ alg: 'SHA-512', content: '000102' }],
    licenses: [{ expression: 'MIT' }],
  });
  expect(bill.dependencies).toEqual([{ ref: bill.metadata.component.purl, dependsOn: refs }]);
});
