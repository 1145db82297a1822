// node scripts/release.js v1.2.3: makes everything that a release publishes, in build/release/1.2.3. It needs no credentials and
// publishes nothing. --check only checks that this is a release; --rehearsal says why it is none, and continues. What updates need
// is signed afterwards, where the key is: docs/updates.md.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { staleManifests } from './manifests.js';
import { checkRepository, releaseNotes } from './release-notes.js';

const NPM_PACKAGES = ['.', 'build/packages/management', 'build/packages/agent'];

/**
 * Files and their SHA-256, in the format of sha256sum.
 *
 * @param {string} folder
 * @returns {string}
 */
export function checksums(folder) {
  const line = (/** @type {string} */ name) =>
    `${createHash('sha256')
      .update(readFileSync(join(folder, name)))
      .digest('hex')}  ${name}\n`;
  return filesBelow(folder)
    .map((path) => relative(folder, path))
    .filter((name) => name !== 'SHA256SUMS')
    .sort()
    .map(line)
    .join('');
}

/** @param {string} tag such as v1.2.3 @param {{ isRehearsal: boolean, isCheck: boolean }} kind */
function release(tag, { isRehearsal, isCheck }) {
  const { version, repository } = JSON.parse(readFileSync('package.json', 'utf8'));
  const check = (/** @type {() => void} */ holds) => {
    try {
      holds();
    } catch (error) {
      if (!isRehearsal) throw error;
      process.stderr.write(`a release would fail: ${error instanceof Error ? error.message : error}\n`);
    }
  };

  const commit = git('rev-parse', 'HEAD');
  check(() => {
    const changed = git('status', '--porcelain');
    if (changed !== '') throw new Error(`the checkout has changes: commit or remove them\n${changed}`);
  });
  check(() => {
    if (!git('tag', '--points-at', 'HEAD').split('\n').includes(tag))
      throw new Error(`tag ${tag} does not name the commit ${commit}: check out the tag, or set it`);
  });
  check(() => {
    const stale = staleManifests().map(([path]) => path);
    if (stale.length > 0) throw new Error(`out of date: ${stale.join(', ')}; run: npm run manifests -- --write`);
  });
  check(() => checkRepository(repository, process.env.GITHUB_REPOSITORY));
  let notes = '';
  check(() => {
    notes = releaseNotes(tag, version, readFileSync('CHANGELOG.md', 'utf8'));
  });
  if (isCheck) return;

  const folder = join('build/release', version);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  // Files in packages get the time of the commit, so that its packages are the same on each build.
  const env = { ...process.env, SOURCE_DATE_EPOCH: git('log', '-1', '--format=%ct') };
  const run = (/** @type {string} */ command, /** @type {string[]} */ ...args) =>
    execFileSync(command, args, { env, stdio: ['ignore', 'ignore', 'inherit'] });
  run('npm', 'run', 'build');
  run('npm', 'run', 'packages');
  setModes([...git('ls-files', '-z').split('\0'), ...filesBelow('dist'), ...filesBelow('build/packages')]);
  for (const path of NPM_PACKAGES)
    run('npm', 'pack', resolve(path), '--ignore-scripts', '--silent', '--pack-destination', folder);
  for (const kind of ['deb', 'archive']) check(() => run('npm', 'run', 'packages', '--', kind, '--folder', folder));
  copyFileSync('dist/sbom.cdx.json', join(folder, 'sbom.cdx.json'));
  writeFileSync(join(folder, 'release-notes.md'), notes);
  // What the Dockerfile needs to know of the release.
  const { repository: source } = JSON.parse(readFileSync('packaging/publication.json', 'utf8'));
  writeFileSync(join(folder, 'image.args'), `VERSION=${version}\nSOURCE_COMMIT=${commit}\nSOURCE_URL=${source}\n`);
  writeFileSync(join(folder, 'SHA256SUMS'), checksums(folder));
  process.stdout.write(`${folder}: ${readdirSync(folder).join(', ')}\n`);
}

/**
 * Gives files the modes that git knows, whatever this machine's umask is: npm packs them.
 *
 * @param {string[]} paths
 */
function setModes(paths) {
  for (const path of paths.filter(Boolean)) chmodSync(path, statSync(path).mode & 0o100 ? 0o755 : 0o644);
}

/** @param {string} folder */
function filesBelow(folder) {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => join(folder, name))
    .filter((path) => statSync(path).isFile());
}

/** @param {string[]} args */
function git(...args) {
  return execFileSync('git', args, { encoding: 'utf8' }).trim();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    const [tag = ''] = process.argv.slice(2).filter((arg) => !arg.startsWith('--'));
    release(tag, {
      isRehearsal: process.argv.includes('--rehearsal'),
      isCheck: process.argv.includes('--check'),
    });
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
    process.exitCode = 1;
  }
}
