import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { firstOf, type Missing, NO_ROOT, programMissing } from './requirements.ts';

/** Why no ACME server can run here; null when one can. It validates at ports 53, 80 and 443, with a test's resolver. */
export const NO_ACME_SERVER: Missing = firstOf(
  programMissing('caddy', 'version'),
  NO_ROOT,
  programMissing('unshare', '--mount', 'true') && 'permission to create namespaces is required',
);

/** Caddy's ACME server, which looks up names with a test's resolver. */
export class AcmeServer {
  #child: ChildProcess | null = null;

  private constructor(
    private readonly folder: string,
    private readonly host: string,
    private readonly port: number,
  ) {}

  /**
   * @param host loopback address to listen on
   * @param resolver IP address of the resolver; its port is 53
   */
  static async start(host: string, resolver: string, port = 14_000): Promise<AcmeServer> {
    const folder = mkdtempSync(join(tmpdir(), 'acme-server-'));
    // Because of the matcher, Caddy issues itself a certificate for the address.
    const route = {
      match: [{ host: [host] }],
      handle: [{ handler: 'acme_server', ca: 'local', host: `${host}:${port}` }],
    };
    const server = { listen: [`${host}:${port}`], routes: [route], automatic_https: { disable_redirects: true } };
    const config = {
      admin: { disabled: true },
      storage: { module: 'file_system', root: folder },
      logging: { logs: { default: { level: 'DEBUG' } } }, // the certificate cache only logs at this level
      apps: {
        // By default, shutdown waits for every pending request.
        http: { servers: { acme: server }, grace_period: '1s' },
        tls: { automation: { policies: [{ issuers: [{ module: 'internal' }] }] } },
        pki: { certificate_authorities: { local: { install_trust: false } } },
      },
    };
    writeFileSync(join(folder, 'caddy.json'), JSON.stringify(config));
    writeFileSync(join(folder, 'resolv.conf'), `nameserver ${resolver}\noptions timeout:2 attempts:2\n`);
    const started = new AcmeServer(folder, host, port);
    await started.resume();
    return started;
  }

  get directoryUrl(): string {
    return `https://${this.host}:${this.port}/acme/local/directory`;
  }

  /** PEM of the root certificate, for the server itself and for all issued certificates. */
  get root(): string {
    return readFileSync(join(this.folder, 'pki/authorities/local/root.crt'), 'utf8');
  }

  /** Stops the process; its state stays on disk. */
  async pause(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (!child || child.exitCode !== null) return;
    child.kill('SIGTERM');
    await once(child, 'exit');
  }

  /** Starts the process, and resolves when it accepts connections. */
  async resume(): Promise<void> {
    const { folder } = this;
    const command = 'mount --bind "$0/resolv.conf" /etc/resolv.conf && exec caddy run --config "$0/caddy.json"';
    const env = { PATH: process.env.PATH, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder };
    const child = spawn('unshare', ['--mount', 'sh', '-c', command, folder], {
      env,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.#child = child;
    const lines: string[] = [];
    await new Promise<void>((resolve, reject) => {
      child.on('exit', () => reject(new Error(`caddy ended: ${lines.slice(-5).join('\n')}`)));
      createInterface({ input: child.stderr }).on('line', (line) => {
        lines.splice(0, lines.length - 20);
        lines.push(line);
        // It refuses connections until it has its own certificate.
        if (line.includes('added certificate to cache')) resolve();
      });
    });
  }

  async stop(): Promise<void> {
    await this.pause();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
