import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import packageJson from '../../package.json' with { type: 'json' };
import { addToRepository } from './apt.ts';
import { buildArchive } from './archive.ts';
import { buildDebs } from './debian.ts';
import { ARCHITECTURES, type Architecture } from './debian-files.ts';

const DEBS = 'build/debian';

/**
 * `deb [amd64|arm64|armhf …]`, `archive [amd64|arm64|armhf …]` and `apt FOLDER`, in the checkout. Prints the paths of what it makes.
 *
 * @throws Error that says what to do
 */
export function runDebianCommand([command, ...args]: readonly string[]): void {
  if (command === 'deb' || command === 'archive') build(command, args);
  else if (command === 'apt') apt(args);
  else {
    throw new Error(
      'usage: npm run packages -- [deb [ARCHITECTURE …] | archive [ARCHITECTURE …] | apt FOLDER (--key FILE | --unsigned) [DEB …] | check | measure]',
    );
  }
}

function build(kind: 'deb' | 'archive', args: string[]): void {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      folder: { type: 'string', default: DEBS },
      version: { type: 'string', default: packageJson.version },
      fast: { type: 'boolean', default: false },
    },
  });
  const all = Object.keys(ARCHITECTURES).filter((name) => name in ARCHITECTURES) as Architecture[];
  const unknown = positionals.find((name) => !(name in ARCHITECTURES));
  if (unknown !== undefined) throw new Error(`unknown architecture ${unknown}: choose from ${all.join(', ')}`);
  const architectures = positionals.length === 0 ? all : all.filter((name) => positionals.includes(name));
  const { folder, version } = values;
  const paths =
    kind === 'deb'
      ? buildDebs({ ...values, draft: false, architectures })
      : architectures.map((architecture) => buildArchive(architecture, folder, version));
  for (const path of paths) process.stdout.write(`${path}\n`);
}

function apt(args: string[]): void {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: { key: { type: 'string' }, url: { type: 'string' }, unsigned: { type: 'boolean', default: false } },
  });
  const [folder, ...given] = positionals;
  const { key = null, unsigned, url } = values;
  if (folder === undefined || (key === null) !== unsigned)
    throw new Error('usage: npm run packages -- apt FOLDER (--key FILE | --unsigned) [--url URL] [DEB …]');
  const built = () => readdirSync(DEBS).filter((name) => name.endsWith('.deb'));
  const debs = given.length > 0 ? given : built().map((name) => join(DEBS, name));
  addToRepository(folder, debs, key, url);
  process.stdout.write(`${folder}\n`);
}
