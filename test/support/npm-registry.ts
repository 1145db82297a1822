import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';

interface Packed {
  manifest: { name: string; version: string; bundleDependencies?: string[] };
  tarball: Buffer;
}

/**
 * An npm registry with the packages that this package needs, as they are in node_modules. Those for other platforms are missing
 * there; npm goes on without them, as they are optional.
 */
export class NpmRegistry {
  readonly #packages = new Map<string, Packed[]>();

  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  /** @param host address at which it listens */
  static async start(host: string): Promise<NpmRegistry> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, host, resolve));
    const registry = new NpmRegistry(server, `http://${host}:${(server.address() as AddressInfo).port}`);
    server.on('request', (request, response) => {
      const answer = registry.#answer(decodeURIComponent(request.url ?? '').slice(1));
      response.writeHead(answer === null ? 404 : 200).end(answer ?? '{}');
    });
    const lock: { packages: Record<string, { dev?: boolean }> } = JSON.parse(readFileSync('package-lock.json', 'utf8'));
    for (const [path, { dev }] of Object.entries(lock.packages)) {
      if (path !== '' && !dev && existsSync(path)) registry.add(path);
    }
    return registry;
  }

  /** Adds the package in a folder. @returns its tarball */
  add(folder: string): Buffer {
    const manifest: Packed['manifest'] = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const left = manifest.bundleDependencies === undefined ? ['--exclude=./node_modules'] : [];
    const options = [...left, '--transform', 's,^\\.,package,', '-C', folder, '.'];
    const tarball = execFileSync('tar', ['-cz', ...options], { maxBuffer: 2 ** 28 });
    this.#packages.set(manifest.name, [...(this.#packages.get(manifest.name) ?? []), { manifest, tarball }]);
    return tarball;
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeAllConnections();
    await closed;
  }

  #answer(path: string): string | Buffer | null {
    const [name = '', file] = path.split('/-/');
    const versions = this.#packages.get(name);
    if (versions === undefined) return null;
    if (file !== undefined) return versions.find(({ manifest }) => file === `${manifest.version}.tgz`)?.tarball ?? null;
    const listed = versions.map(({ manifest, tarball }) => {
      const integrity = `sha512-${createHash('sha512').update(tarball).digest('base64')}`;
      return { ...manifest, dist: { tarball: `${this.url}/${name}/-/${manifest.version}.tgz`, integrity } };
    });
    return JSON.stringify({
      name,
      'dist-tags': { latest: listed.at(-1)?.version },
      versions: Object.fromEntries(listed.map((each) => [each.version, each])),
    });
  }
}
