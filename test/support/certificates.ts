import { createPrivateKey, type webcrypto } from 'node:crypto';
import { isIP } from 'node:net';
import 'reflect-metadata';
import * as x509 from '@peculiar/x509';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };

export interface Issued {
  certificatePem: string;
  privateKeyPem: string;
  keys: webcrypto.CryptoKeyPair;
  certificate: x509.X509Certificate;
}

interface IssueOptions {
  subject: string;
  names?: string[];
  ca?: boolean;
  issuer?: Issued;
  notBefore?: Date;
  notAfter?: Date;
  /** Of the signature; left out: SHA-256. */
  hash?: 'SHA-1';
  /** Whether it names its issuer's key, as certificates of public CAs do, with a serial number that DER adds a zero to. */
  keyId?: boolean;
  /** SubjectPublicKeyInfo in DER instead of that of the key that is made; nobody can sign with it then. */
  publicKey?: Uint8Array<ArrayBuffer>;
}

/** Issues a certificate for a test: self-signed without an issuer. */
export async function issueCertificate(options: IssueOptions): Promise<Issued> {
  const { subject, names = [], ca = false, issuer } = options;
  const keys = (await crypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify'])) as webcrypto.CryptoKeyPair;
  const extensions: x509.Extension[] = [new x509.BasicConstraintsExtension(ca, undefined, true)];
  if (ca) {
    extensions.push(new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true));
  } else {
    extensions.push(new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true));
    extensions.push(
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth, x509.ExtendedKeyUsage.clientAuth]),
    );
  }
  if (names.length > 0) {
    extensions.push(new x509.SubjectAlternativeNameExtension(names.map(alternativeName)));
  }
  if (options.keyId) extensions.push(await x509.AuthorityKeyIdentifierExtension.create(keys.publicKey));
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: options.keyId ? '87654321' : '0a1b2c',
    subject,
    issuer: issuer?.certificate.subject ?? subject,
    notBefore: options.notBefore ?? new Date('2026-01-01T00:00:00Z'),
    notAfter: options.notAfter ?? new Date('2036-01-01T00:00:00Z'),
    publicKey: options.publicKey ?? keys.publicKey,
    signingKey: (issuer?.keys ?? keys).privateKey,
    signingAlgorithm: { ...ALGORITHM, hash: options.hash ?? ALGORITHM.hash },
    extensions,
  });
  const der = Buffer.from(await crypto.subtle.exportKey('pkcs8', keys.privateKey));
  const key = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  return {
    certificatePem: certificate.toString('pem'),
    privateKeyPem: String(key.export({ format: 'pem', type: 'pkcs8' })),
    keys,
    certificate,
  };
}

function alternativeName(value: string): x509.JsonGeneralName {
  if (value.includes('@')) return { type: 'email', value };
  return { type: isIP(value) ? 'ip' : 'dns', value };
}
