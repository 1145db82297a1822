import { execFileSync } from 'node:child_process';
import { createReadStream, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { sharedFolder } from '../../support/temporary-folder.ts';

/** Makes an OpenPGP key for a test, as the owner of a repository has one. Returns the file with the secret key. */
export function makeKey(): string {
  const folder = sharedFolder();
  const gpg = (...args: string[]) => execFileSync('gpg', ['--homedir', folder, '--batch', '--quiet', ...args]);
  gpg('--passphrase', '', '--quick-generate-key', 'Test <test@example.com>', 'ed25519', 'sign', 'never');
  const file = join(folder, 'secret.asc');
  gpg('--armor', '--output', file, '--export-secret-keys');
  execFileSync('gpgconf', ['--homedir', folder, '--kill', 'all']);
  return file;
}

/** Builds Debian packages as the release does; quickly. */
export function buildPackages(architecture: string, version: string, folder: string): void {
  const args = ['deb', architecture, '--fast', '--version', version, '--folder', folder];
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
