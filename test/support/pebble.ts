import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { issueCertificate } from './certificates.ts';
import { freePorts } from './free-ports.ts';
import { type Missing, programMissing } from './requirements.ts';
import { until } from './until.ts';

/** Why Let's Encrypt's test server cannot run here; null when it can. */
export const NO_PEBBLE: Missing = programMissing('pebble', '-version');

interface PebbleOptions {
  /** `ip:port` of the resolver. */
  resolver: string;
  /** Ports of the gateway under test. */
  httpPort: number;
  httpsPort: number;
  /** Keys of external account bindings, by their identifiers; without any, none is required. */
  bindings?: Record<string, string>;
  /** Such as `PEBBLE_WFE_NONCEREJECT`; validations do not pause unless `PEBBLE_VA_NOSLEEP` is `0`. */
  env?: Record<string, string>;
}

/** Pebble, in its strict mode. Its state is in memory, and ends with it. */
export class Pebble {
  /** What it has logged. */
  readonly lines: string[] = [];
  readonly #waiting = new Set<(line: string) => void>();

  private constructor(
    private readonly folder: string,
    private readonly child: ChildProcess,
    private readonly port: number,
    /** PEM of the CA of its own certificate, which is not the root that issues. */
    readonly serverCa: string,
  ) {}

  static async start({ resolver, httpPort, httpsPort, bindings = {}, env = {} }: PebbleOptions): Promise<Pebble> {
    const folder = mkdtempSync(join(tmpdir(), 'pebble-'));
    const { first: port } = await freePorts(2);
    const own = await issueCertificate({ subject: 'CN=pebble', names: ['127.0.0.1'] });
    const [certificate, privateKey, config] = ['server.pem', 'server.key', 'pebble.json'].map((name) =>
      join(folder, name),
    ) as [string, string, string];
    writeFileSync(certificate, own.certificatePem);
    writeFileSync(privateKey, own.privateKeyPem);
    const day = 86_400;
    const pebble = {
      listenAddress: `127.0.0.1:${port}`,
      managementListenAddress: `127.0.0.1:${port + 1}`,
      ...{ certificate, privateKey, httpPort, tlsPort: httpsPort, keyAlgorithm: 'ecdsa' },
      externalAccountBindingRequired: Object.keys(bindings).length > 0,
      externalAccountMACKeys: bindings,
      retryAfter: { authz: 1, order: 1 },
      profiles: {
        default: { description: 'three months', validityPeriod: 90 * day },
        shortlived: { description: 'six days', validityPeriod: 6 * day },
      },
    };
    writeFileSync(config, JSON.stringify({ pebble }));
    const child = spawn('pebble', ['-strict', '-config', config, '-dnsserver', resolver], {
      env: { PATH: process.env.PATH, PEBBLE_VA_NOSLEEP: '1', ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const started = new Pebble(folder, child, port, own.certificatePem);
    await started.#listening();
    // It says so before it listens.
    for (const each of [port, port + 1]) await until(() => accepts(each), 'Pebble to listen', { everyMs: 20 });
    return started;
  }

  get directoryUrl(): string {
    return `https://127.0.0.1:${this.port}/dir`;
  }

  /** PEM of the root that issues. @param chain 0 is that of the default chain, others are alternates */
  root(chain = 0): Promise<string> {
    return this.#manage('GET', `/roots/${chain}`);
  }

  /** `Valid` or `Revoked`. @param serial in hexadecimal digits */
  async status(serial: string): Promise<string> {
    return JSON.parse(await this.#manage('GET', `/cert-status-by-serial/${serial.toLowerCase()}`)).Status;
  }

  /** Has it answer questions about a certificate's renewal so. */
  async suggestRenewal(certificate: string, response: object): Promise<void> {
    const body = { Certificate: certificate, ARIResponse: JSON.stringify(response) };
    await this.#manage('POST', '/set-renewal-info/', JSON.stringify(body));
  }

  /** How many lines of its log contain a text. */
  count(part: string): number {
    return this.lines.filter((line) => line.includes(part)).length;
  }

  /** Resolves as soon as it logs a line with a text, or after some milliseconds. */
  logs(part: string, withinMs: number): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        this.#waiting.delete(take);
        resolve();
      };
      const take = (line: string) => (line.includes(part) ? end() : undefined);
      const timer = setTimeout(end, withinMs);
      this.#waiting.add(take);
    });
  }

  async stop(): Promise<void> {
    if (this.child.exitCode === null) {
      this.child.kill('SIGKILL');
      await once(this.child, 'exit');
    }
    rmSync(this.folder, { recursive: true, force: true });
  }

  async #listening(): Promise<void> {
    const { child, lines } = this;
    await new Promise<void>((resolve, reject) => {
      child.on('exit', () => reject(new Error(`pebble ended: ${lines.slice(-5).join('\n')}`)));
      if (child.stdout === null) return;
      createInterface({ input: child.stdout }).on('line', (line) => {
        lines.push(line);
        for (const take of this.#waiting) take(line);
        if (line.includes('ACME directory available at')) resolve();
      });
    });
  }

  #manage(method: string, path: string, body?: string): Promise<string> {
    return new Promise((resolve, reject) => {
      const place = { host: '127.0.0.1', port: this.port + 1, method, path, ca: this.serverCa, agent: false };
      request({ ...place, headers: { 'User-Agent': 'test' } })
        .on('response', async (response) => {
          const answer = await text(response);
          if (response.statusCode === 200) resolve(answer);
          else reject(new Error(`pebble: ${method} ${path}: ${response.statusCode} ${answer}`));
        })
        .on('error', reject)
        .end(body);
    });
  }
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
