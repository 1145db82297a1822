import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import type { OutputBundle } from 'rolldown';

/** What the bundlers themselves add, and the packages that it is from. */
const RUNTIMES = new Map([
  ['\0rolldown/runtime.js', 'rolldown'],
  ['\0vite/preload-helper.js', 'vite'],
]);

export interface BundledPackage {
  folder: string;
  name: string;
  version: string;
  license: string;
  /** Those of its files of which the bundle has code. */
  modules: string[];
}

/**
 * The packages whose code is in a bundle, by name.
 *
 * @param home the folder of this program, which is not among them
 */
export function packagesIn(bundle: OutputBundle, home: string): BundledPackage[] {
  const found = new Map<string, BundledPackage>();
  for (const output of Object.values(bundle)) {
    if (output.type !== 'chunk') continue;
    for (const [id, { renderedLength }] of Object.entries(output.modules)) {
      if (renderedLength === 0) continue;
      const bundler = RUNTIMES.get(id);
      const file = bundler === undefined ? id : createRequire(import.meta.url).resolve(bundler);
      const owner = packageOf(file);
      const known = found.get(owner.folder);
      if (known) known.modules.push(file);
      else if (owner.folder !== home) found.set(owner.folder, { ...owner, modules: [file] });
    }
  }
  return [...found.values()].sort((a, b) => `${a.name} ${a.version}`.localeCompare(`${b.name} ${b.version}`, 'en'));
}

/** The package that a file belongs to: a package.json without a name and a version only says how to read a folder. */
function packageOf(file: string): Omit<BundledPackage, 'modules'> {
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    const manifest = join(folder, 'package.json');
    if (existsSync(manifest)) {
      const { name, version, license = '' } = JSON.parse(readFileSync(manifest, 'utf8'));
      if (name && version) return { folder, name, version, license };
    }
    if (folder === dirname(folder)) throw new Error(`${file} is in the bundle, but belongs to no package`);
  }
}
