import { createHash, createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { hasErrno } from '../../../lib/errors.ts';
import { writeDurably } from '../../../lib/files/durable-write.ts';
import type { Log } from '../../../lib/log/log.ts';
import { isPlausible, leafRenewal } from './certificate-validity.ts';

/** A certificate and its private key, both PEM. */
export interface CertifiedKey {
  cert: string;
  key: string;
  /** Whether this gateway has made both: they need no check before use. */
  isOwn?: boolean;
}

export interface Leaf extends CertifiedKey {
  /** When to replace it, in milliseconds since 1970. */
  renewAt: number;
}

/** Begins the last line of a file, with a digest of what is before it and of the CA's key. */
const DIGEST = '# sha256 ';

/**
 * Keeps the local CA's certificates on disk, so that most starts issue none: the code that issues them is large and slow to
 * load. There are 4,096 files at most, two for each name: of a few hundred names, hardly any overwrite each other. Certificates
 * that are damaged, due for renewal or from another CA are issued again. A read-only disk only costs issuing at every start.
 * Each file ends with a digest that shows damage: it would take OpenSSL half a millisecond to read the key. Files are read at
 * once: after a restart, hundreds of names wait, and the thread would take longer to begin and end reading than to read.
 */
export class CertificateFiles {
  /** By file: settles when its last use has finished. */
  readonly #turns = new Map<string, Promise<void>>();
  readonly #caKey: Buffer;

  constructor(
    private readonly options: {
      dir: string;
      ca: X509Certificate;
      issue(names: readonly string[]): Promise<CertifiedKey>;
      log: Log;
      /** The wall clock in milliseconds. */
      now: () => number;
    },
  ) {
    this.#caKey = options.ca.publicKey.export({ type: 'spki', format: 'der' });
  }

  /** @param names host names and IP addresses that the certificate is for; the first one is its subject */
  leafFor(names: readonly string[]): Promise<Leaf> {
    const files = this.#filesFor(names);
    const before = Promise.all(files.map((file) => this.#turns.get(file)));
    const leaf = before.then(() => {
      const free: string[] = [];
      for (const file of files) {
        const stored = this.#read(file, names);
        if (stored !== null && stored !== 'of others') return stored;
        if (stored === null) free.push(file);
      }
      const [file = ''] = [...free, ...files];
      return this.#issue(file, names);
    });
    const settled = leaf.then(
      () => {},
      () => {},
    );
    for (const file of files) this.#turns.set(file, settled);
    return leaf;
  }

  #filesFor(names: readonly string[]): string[] {
    // A clock in 1970 needs its own certificate: a device that always starts in 1970 keeps both.
    const key = JSON.stringify([isPlausible(this.options.now()), ...names]);
    const digest = createHash('sha256').update(key).digest('hex');
    return [digest.slice(0, 3), digest.slice(3, 6)].map((name) => join(this.options.dir, `${name}.pem`));
  }

  #read(file: string, names: readonly string[]): Leaf | 'of others' | null {
    try {
      const text = readFileSync(file, 'utf8');
      const [pems = ''] = text.split(DIGEST);
      const pair = splitPem(pems);
      const certificate = new X509Certificate(pair.cert);
      if (text !== this.#withDigest(pems)) {
        if (!certificate.checkPrivateKey(createPrivateKey(pair.key)))
          throw new Error('the key does not match the certificate');
        if (!this.#isOurs(certificate)) return null;
      }
      if (!names.every((name) => isFor(certificate, name))) return 'of others';
      const renewAt = leafRenewal(certificate);
      const now = this.options.now();
      return Date.parse(certificate.validFrom) <= now && now < renewAt ? { ...pair, isOwn: true, renewAt } : null;
    } catch (err) {
      if (!hasErrno(err, 'ENOENT')) {
        this.options.log.warn({ err, file }, 'certificate file unusable; issuing a new certificate');
      }
      return null;
    }
  }

  #isOurs(certificate: X509Certificate): boolean {
    const { ca } = this.options;
    return certificate.checkIssued(ca) && certificate.verify(ca.publicKey);
  }

  /** What a file holds. With another CA, it would end otherwise. */
  #withDigest(pems: string): string {
    const hash = createHash('sha256').update(this.#caKey).update(pems);
    return `${pems}${DIGEST}${hash.digest('hex')}\n`;
  }

  async #issue(file: string, names: readonly string[]): Promise<Leaf> {
    const { dir, issue, log } = this.options;
    const pair = await issue(names);
    try {
      await mkdir(dir, { recursive: true, mode: 0o700 });
      await writeDurably(file, this.#withDigest(pair.cert + pair.key), 0o600);
    } catch (err) {
      log.warn({ err, file }, 'certificate not saved; the next start issues it again');
    }
    return { ...pair, isOwn: true, renewAt: leafRenewal(new X509Certificate(pair.cert)) };
  }
}

/** @throws when the text is not a certificate with a key after it */
function splitPem(text: string): CertifiedKey {
  const at = text.indexOf('-----BEGIN PRIVATE KEY-----');
  if (at === -1) throw new Error('it holds no private key');
  return { cert: text.slice(0, at), key: text.slice(at) };
}

function isFor(certificate: X509Certificate, name: string): boolean {
  const host = name.replace(/^\*/, 'any');
  return (isIP(name) === 0 ? certificate.checkHost(host) : certificate.checkIP(name)) !== undefined;
}
