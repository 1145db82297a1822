import { execFileSync } from 'node:child_process';
import { createReadStream, existsSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import publication from '../../../packaging/publication.json' with { type: 'json' };
import { makeFolder } from '../../support/temporary-folder.ts';

/** The commands of docs/raspberry-pi.md that install the package, in order, with another address of the repository. */
export function commandsInDocs(url: string): string[] {
  const page = readFileSync('docs/raspberry-pi.md', 'utf8');
  const [, block = ''] = /```sh\n(curl [^`]*device-agent\.sources[^`]*)```/.exec(page) ?? [];
  return block
    .trim()
    .split('\n')
    .map((line) => line.replaceAll(publication.apt.url, url));
}

/**
 * Makes an OpenPGP key, as the owner of a repository has one.
 *
 * @param folder for its file, which has the secret key
 */
export function makeKey(folder: string): string {
  const home = makeFolder();
  const gpg = (...args: string[]) => execFileSync('gpg', ['--homedir', home, '--batch', '--quiet', ...args]);
  gpg('--passphrase', '', '--quick-generate-key', 'Test <test@example.com>', 'ed25519', 'sign', 'never');
  const file = join(folder, 'secret.asc');
  gpg('--armor', '--output', file, '--export-secret-keys');
  execFileSync('gpgconf', ['--homedir', home, '--kill', 'all']);
  rmSync(home, { recursive: true });
  return file;
}

/** Builds Debian packages as the release does; with `--fast` quickly, but larger. */
export function buildPackages(architecture: string, version: string, folder: string, options = ['--fast']): void {
  const args = ['deb', architecture, ...options, '--version', version, '--folder', folder];
  execFileSync(process.execPath, ['scripts/packages.js', ...args], { stdio: ['ignore', 'ignore', 'inherit'] });
}

/** Puts the packages of a folder into a repository. */
export function publish(repository: string, key: string, url: string, debs: readonly string[]): void {
  const args = ['apt', repository, '--key', key, '--url', url, ...debs];
  execFileSync(process.execPath, ['scripts/packages.js', ...args], { stdio: ['ignore', 'ignore', 'inherit'] });
}

/** Serves a folder of static files over HTTP. */
export async function serve(folder: string, host: string): Promise<{ url: string; close: () => void }> {
  const server = createServer((req, res) => {
    const file = join(folder, decodeURIComponent(new URL(req.url ?? '/', 'http://x').pathname));
    if (!file.startsWith(folder) || !existsSync(file)) return void res.writeHead(404).end();
    createReadStream(file)
      .on('error', () => res.writeHead(404).end())
      .pipe(res);
  });
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  const { port } = server.address() as AddressInfo;
  return { url: `http://${host}:${port}`, close: () => void server.close() };
}
