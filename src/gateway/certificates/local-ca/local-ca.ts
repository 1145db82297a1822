import { createPrivateKey, X509Certificate } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { hasErrno, messageOf, OperatorError } from '../../../lib/errors.ts';
import { explainUnreadable, writeDurably } from '../../../lib/files/durable-write.ts';
import type { Log } from '../../../lib/log/log.ts';
import { caIdOf } from '../../../lib/tls/pinned-chain.ts';
import { makePrivateKey } from '../issuing/certificate-issuer.ts';
import { CertificateFiles, type Leaf } from './certificate-files.ts';
import { isCaDue } from './certificate-validity.ts';
import type { CertifyLeaf } from './x509.ts';

/** The gateway's own certificate authority (CA). Clients trust it by its certificate file. */
export interface LocalCa {
  /** Path of the certificate that clients must trust, relative if the folder's path is. */
  readonly caFile: string;
  readonly caPem: string;
  /** See `caIdOf`. */
  readonly id: string;
  /** The CA that a client asks for, by its id; null: it asks for none of this gateway's. */
  among(ids: readonly string[]): LocalCa | null;
  /** The CAs of the gateway, this one first: there is another while it is being changed. */
  readonly all: readonly LocalCa[];
  /** The certificate on disk, or a new one. The first of the host names and IP addresses is its subject. */
  issue(names: readonly string[]): Promise<Leaf>;
  /** Issues a certificate (PEM) for a key, with names as in {@link LocalCa.issue}. It is not stored. */
  certify(names: readonly string[], privateKeyPem: string): Promise<string>;
}

/**
 * Opens the CA of a folder, or creates it. @throws {OperatorError} when a file of the CA is damaged or missing: replacing it
 * would lock out every client that trusts the old one, so the operator decides
 */
export async function openLocalCa(dir: string, log: Log, now: () => number = Date.now): Promise<LocalCa> {
  await mkdir(dir, { recursive: true });
  const caFile = join(dir, 'ca.pem');
  const keyFile = join(dir, 'ca-key.pem');
  const [stored, storedKey] = await Promise.all([readIfThere(caFile), readIfThere(keyFile)]);
  if (stored !== null && storedKey === null) throw damaged(keyFile, 'is missing', caFile);

  // The key is written first: an interruption leaves a key without a certificate, never the reverse.
  const keyPem = storedKey ?? (await makeKey(keyFile));
  checkKey(keyPem, keyFile, caFile);
  if (stored !== null) checkCertificate(stored, keyPem, caFile, keyFile);

  const isDue = stored === null || isCaDue(new X509Certificate(stored), now());
  const caPem = isDue ? await certifyItself(caFile, keyPem, now()) : stored;
  if (stored === null && storedKey === null) log.info({ ca: caFile }, 'certificate authority created');
  return localCa({ caPem, keyPem, caFile, leaves: join(dir, 'leaves') }, log, now);
}

interface CaFiles {
  caPem: string;
  keyPem: string;
  caFile: string;
  /** Folder of its certificates. */
  leaves: string;
}

/** A CA whose certificate and key are known. */
export function localCa({ caPem, keyPem, caFile, leaves: dir }: CaFiles, log: Log, now = Date.now): LocalCa {
  let certifier: Promise<CertifyLeaf> | null = null;
  const certify = async (names: readonly string[], privateKeyPem: string) => {
    const leafKey = createPrivateKey(privateKeyPem);
    certifier ??= loadX509()
      .then(({ leafCertifier }) => leafCertifier(caPem, keyPem))
      .catch((error: unknown) => {
        certifier = null; // The next one tries again.
        throw error;
      });
    return (await certifier)(names, leafKey, now());
  };
  const certificate = new X509Certificate(caPem);
  const leaves = new CertificateFiles({
    dir,
    ca: certificate,
    issue: async (names) => {
      const key = await makePrivateKey('ecdsa');
      return { cert: await certify(names, key), key };
    },
    log,
    now,
  });
  const id = caIdOf(certificate);
  const ca: LocalCa = {
    ...{ caFile, caPem, id, certify },
    issue: (names) => leaves.leafFor(names),
    among: (ids) => (ids.includes(id) ? ca : null),
    get all() {
      return [ca];
    },
  };
  return ca;
}

/** Makes a CA that is stored nowhere yet; both as PEM. */
export async function makeCa(): Promise<{ caPem: string; keyPem: string }> {
  const keyPem = await makePrivateKey('ecdsa');
  return { keyPem, caPem: await (await loadX509()).certifyCa(keyPem, Date.now()) };
}

/** Loaded on first use, because it is large and slow to load. */
function loadX509() {
  return import('./x509.ts');
}

async function makeKey(keyFile: string): Promise<string> {
  const pem = await makePrivateKey('ecdsa');
  await writeDurably(keyFile, pem, 0o600);
  return pem;
}

/** Renewal keeps the key, so that clients with the old certificate file still trust the CA. */
async function certifyItself(caFile: string, keyPem: string, now: number): Promise<string> {
  const pem = await (await loadX509()).certifyCa(keyPem, now);
  await writeDurably(caFile, pem, 0o644);
  return pem;
}

function checkKey(keyPem: string, keyFile: string, caFile: string): void {
  try {
    const key = createPrivateKey(keyPem);
    if (key.asymmetricKeyDetails?.namedCurve !== 'prime256v1') throw new Error('not an EC key on P-256');
  } catch (error) {
    throw damaged(keyFile, `is damaged (${messageOf(error)})`, caFile);
  }
}

function checkCertificate(caPem: string, keyPem: string, caFile: string, keyFile: string): void {
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(caPem);
  } catch (error) {
    throw damaged(caFile, `is damaged (${messageOf(error)})`, keyFile);
  }
  if (!certificate.ca) throw damaged(caFile, 'is not a CA certificate', keyFile);
  if (!certificate.checkPrivateKey(createPrivateKey(keyPem))) {
    throw damaged(caFile, `does not match the key in ${keyFile}`, keyFile);
  }
}

function damaged(file: string, what: string, other: string): OperatorError {
  return new OperatorError(
    `${file} ${what}; restore it from a backup, or remove it together with ${other}: ` +
      'the gateway then creates a new CA, which every client must trust again',
  );
}

async function readIfThere(file: string): Promise<string | null> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return null;
    throw explainUnreadable(file, error);
  }
}
