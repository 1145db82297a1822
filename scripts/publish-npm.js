// node scripts/publish-npm.js build/release/1.2.3: publishes the npm packages of a release with provenance, as they are in that
// folder. Needs the credentials of the names' owner. Further arguments are npm's, such as --dry-run. A second run continues.
import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { resolve } from 'node:path';

const [folder = '', ...more] = process.argv.slice(2);
// npm takes a path without a dot for the name of a repository.
const packages = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
if (packages.length === 0) throw new Error(`${folder} has no npm packages: run node scripts/release.js first`);
const provenance = more.includes('--dry-run') ? [] : ['--provenance'];
for (const path of packages.map((name) => resolve(folder, name))) {
  const manifest = JSON.parse(
    execFileSync('tar', ['--extract', '--to-stdout', '--file', path, 'package/package.json'], { encoding: 'utf8' }),
  );
  const id = `${manifest.name}@${manifest.version}`;
  if (spawnSync('npm', ['view', id, 'version'], { encoding: 'utf8' }).stdout.trim() === manifest.version) {
    process.stdout.write(`${id} is published already\n`);
    continue;
  }
  execFileSync('npm', ['publish', path, ...provenance, '--access', 'public', ...more], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  process.stdout.write(`${id} published${more.includes('--dry-run') ? ' (dry run)' : ''}\n`);
}
