import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import publication from '../../packaging/publication.json' with { type: 'json' };
import { ARCHITECTURES } from './debian-files.ts';
import { execute } from './execute.ts';
import { sourceDate } from './program.ts';

const { name, apt } = publication;

/**
 * Adds packages to a signed apt repository: a folder of static files, which may be new. What it has already stays. The same
 * commit gives the same bytes, except for the signatures.
 *
 * @param folder of the repository
 * @param debs paths of packages
 * @param key file with a secret OpenPGP key without a passphrase, as `gpg --export-secret-keys` writes it; null: not signed
 * @param url where the folder will be
 * @throws Error when a tool fails, or the key cannot sign
 */
export function addToRepository(folder: string, debs: readonly string[], key: string | null, url = apt.url): void {
  const pool = join(folder, 'pool', apt.component);
  const lists = join(folder, 'dists', apt.suite);
  mkdirSync(pool, { recursive: true });
  for (const deb of debs) copyFileSync(deb, join(pool, basename(deb)));
  const date = releaseDate(join(lists, 'Release'));
  rmSync(lists, { recursive: true, force: true });
  for (const architecture of Object.keys(ARCHITECTURES)) {
    const index = join(lists, apt.component, `binary-${architecture}`);
    const byHash = join(index, 'by-hash/SHA256');
    mkdirSync(byHash, { recursive: true });
    const packages = Buffer.from(
      sorted(execute('apt-ftparchive', ['--arch', architecture, 'packages', 'pool'], folder)),
    );
    for (const [file, content] of [
      ['Packages', packages],
      ['Packages.gz', gzipSync(packages, { level: 9 })],
    ] as const) {
      writeFileSync(join(index, file), content);
      // While files are copied to a server one by one, clients still find those that belong together.
      writeFileSync(join(byHash, createHash('sha256').update(content).digest('hex')), content);
    }
  }
  const fields = {
    ...{ Origin: name, Label: name, Suite: apt.suite, Codename: apt.suite, Components: apt.component },
    ...{ Architectures: Object.keys(ARCHITECTURES).join(' '), 'Acquire-By-Hash': 'yes' },
  };
  const options = Object.entries(fields).map(([field, value]) => `APT::FTPArchive::Release::${field}=${value}`);
  const only = ['MD5', 'SHA1', 'SHA512'].map((sum) => `APT::FTPArchive::${sum}=false`);
  const args = [...options, ...only].flatMap((option) => ['-o', option]);
  const release = execute('apt-ftparchive', [...args, 'release', join('dists', apt.suite)], folder);
  const sums = release.match(/^ .*$/gm)?.sort().join('\n');
  writeFileSync(
    join(lists, 'Release'),
    release
      .replace(/^Date: .*/m, `Date: ${date.toUTCString().replace('GMT', '+0000')}`)
      .replace(/(?<=^SHA256:\n)(^ .*\n)+/m, `${sums}\n`),
  );
  if (key !== null) sign(folder, key, url);
}

/** apt keeps the lists that it has when those of the repository are older: a repository's date never goes back. */
function releaseDate(file: string): Date {
  const [, before = 0] = (existsSync(file) && /^Date: (.*)/m.exec(readFileSync(file, 'utf8'))) || [];
  return new Date(Math.max(sourceDate() * 1000, new Date(before).getTime()));
}

/** apt-ftparchive lists packages, and files, in the order in which the disk has them. */
function sorted(packages: string): string {
  const stanzas = packages.split('\n\n').filter(Boolean).sort();
  return stanzas.map((stanza) => `${stanza}\n\n`).join('');
}

/** Signs the lists, and writes the public key and the file for apt's sources beside them. */
function sign(folder: string, key: string, url: string): void {
  const home = mkdtempSync(join(tmpdir(), 'gnupg-'));
  const gpg = (...args: string[]) => execute('gpg', ['--homedir', home, '--batch', '--yes', '--quiet', ...args]);
  try {
    gpg('--import', key);
    const release = join(folder, 'dists', apt.suite, 'Release');
    gpg('--digest-algo', 'SHA512', '--clearsign', '--output', join(folder, 'dists', apt.suite, 'InRelease'), release);
    gpg('--digest-algo', 'SHA512', '--armor', '--detach-sign', '--output', `${release}.gpg`, release);
    const publicKey = gpg('--armor', '--export');
    writeFileSync(join(folder, apt.keyFile), publicKey);
    writeFileSync(join(folder, `${name}.sources`), sourcesText(url, publicKey));
  } finally {
    execute('gpgconf', ['--homedir', home, '--kill', 'all']);
    rmSync(home, { recursive: true, force: true });
  }
}

/** The file for /etc/apt/sources.list.d, with the key in it: one file to fetch. */
function sourcesText(url: string, publicKey: string): string {
  const key = publicKey
    .trim()
    .split('\n')
    .map((line) => ` ${line || '.'}\n`);
  return `Types: deb\nURIs: ${url}\nSuites: ${apt.suite}\nComponents: ${apt.component}\nSigned-By:\n${key.join('')}`;
}
