import { createPrivateKey, createPublicKey, type KeyObject, randomBytes, webcrypto } from 'node:crypto';
import { isIP, isIPv6 } from 'node:net';
import { canonicalIpv6 } from '../../../lib/network/ip-address.ts';
import * as x509 from '../../../lib/x509-library.ts';
import { caValidity, leafValidity } from './certificate-validity.ts';

/*
 * Loading this module takes 15 MB of memory and 0.2 s: import it only when a certificate must be issued.
 */

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const CA_NAME = 'CN=device-agent local CA';

/** Issues a CA certificate (PEM) for a key; `now` is in milliseconds since 1970. */
export async function certifyCa(keyPem: string, now: number): Promise<string> {
  const keys = await signingKeys(createPrivateKey(keyPem));
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    ...caValidity(now),
    name: CA_NAME,
    serialNumber: serialNumber(),
    signingAlgorithm: ALGORITHM,
    keys,
    extensions: [
      // A CA that cannot issue further CAs.
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return pemOf(certificate);
}

/**
 * Issues a server's certificate, as PEM.
 *
 * @param names host names and IP addresses
 * @param now milliseconds since 1970
 */
export type CertifyLeaf = (names: readonly string[], leafKey: KeyObject, now: number) => Promise<string>;

/** Parses a CA once for all certificates that it issues: OpenSSL takes longer to read a key than to sign with it. */
export async function leafCertifier(caPem: string, keyPem: string): Promise<CertifyLeaf> {
  const ca = new x509.X509Certificate(caPem);
  const caKeys = await signingKeys(createPrivateKey(keyPem));
  const caIdentifier = await x509.AuthorityKeyIdentifierExtension.create(caKeys.publicKey);
  return async (names, leafKey, now) => {
    const subject = subjectOf(names);
    const certificate = await x509.X509CertificateGenerator.create({
      ...leafValidity(now, ca.notAfter),
      subject,
      // The encoded name, not its text: clients compare issuer and subject byte by byte.
      issuer: ca.subjectName,
      serialNumber: serialNumber(),
      signingAlgorithm: ALGORITHM,
      publicKey: createPublicKey(leafKey).export({ type: 'spki', format: 'der' }),
      signingKey: caKeys.privateKey,
      extensions: [
        new x509.BasicConstraintsExtension(false, undefined, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
        // RFC 5280, 4.2.1.6: critical when the subject is empty.
        new x509.SubjectAlternativeNameExtension(names.map(alternativeName), subject === ''),
        caIdentifier,
      ],
    });
    return pemOf(certificate);
  };
}

/** A common name has at most 64 characters (RFC 5280, A.1); clients only check the alternative names. */
function subjectOf([name = '']: readonly string[]): string {
  return /^[a-z0-9.:*_-]{1,64}$/i.test(name) ? `CN=${name}` : '';
}

function alternativeName(name: string): x509.JsonGeneralName {
  if (isIP(name) === 0) return { type: 'dns', value: name };
  // The library does not support IPv6 addresses with an embedded IPv4 address.
  return { type: 'ip', value: isIPv6(name) ? canonicalIpv6(name) : name };
}

/** Positive, and at most 20 octets (RFC 5280, 4.1.2.2); the fixed first bits avoid leading zeros. */
function serialNumber(): string {
  const bytes = randomBytes(16);
  bytes.writeUInt8((bytes.readUInt8(0) & 0x3f) | 0x40, 0);
  return bytes.toString('hex');
}

async function signingKeys(key: KeyObject): Promise<webcrypto.CryptoKeyPair> {
  const pkcs8 = key.export({ type: 'pkcs8', format: 'der' });
  const spki = createPublicKey(key).export({ type: 'spki', format: 'der' });
  const [privateKey, publicKey] = await Promise.all([
    webcrypto.subtle.importKey('pkcs8', pkcs8, ALGORITHM, false, ['sign']),
    webcrypto.subtle.importKey('spki', spki, ALGORITHM, true, ['verify']),
  ]);
  return { privateKey, publicKey };
}

function pemOf(certificate: x509.X509Certificate): string {
  return `${certificate.toString('pem')}\n`;
}
