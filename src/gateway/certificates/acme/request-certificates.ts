import { createHash, createPrivateKey, createPublicKey, randomBytes, webcrypto } from 'node:crypto';
import { isIP, isIPv6 } from 'node:net';
import { canonicalIpv6 } from '../../../lib/network/ip-address.ts';
import * as x509 from '../../../lib/x509-library.ts';

/*
 * Loading this module takes 15 MB of memory and 0.2 s: import it only when a certificate is ordered.
 */

const ECDSA = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const RSA = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' };

/** The request for a certificate of a name or IP address (PKCS #10), as DER. */
export async function certificateRequest(name: string, privateKeyPem: string): Promise<Buffer> {
  const { keys, algorithm } = await importedKeys(privateKeyPem);
  const request = await x509.Pkcs10CertificateRequestGenerator.create({
    keys,
    signingAlgorithm: algorithm,
    extensions: [new x509.SubjectAlternativeNameExtension([alternativeName(name)])],
  });
  return Buffer.from(request.rawData);
}

/** The extension that holds the digest of the key authorization (RFC 8737, section 6.1). */
const ACME_IDENTIFIER = '1.3.6.1.5.5.7.1.31';
const OCTETS = 0x04;
const DAY_MS = 86_400_000;

/** The self-signed certificate that answers a TLS-ALPN challenge (RFC 8737, section 3), as PEM. */
export async function challengeCertificate(
  name: string,
  keyAuthorization: string,
  privateKeyPem: string,
): Promise<string> {
  const { keys, algorithm } = await importedKeys(privateKeyPem);
  const digest = createHash('sha256').update(keyAuthorization).digest();
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: 'CN=ACME challenge',
    serialNumber: `01${randomBytes(15).toString('hex')}`,
    // Clocks of machines are wrong by a day.
    notBefore: new Date(Date.now() - DAY_MS),
    notAfter: new Date(Date.now() + DAY_MS),
    signingAlgorithm: algorithm,
    keys,
    extensions: [
      new x509.SubjectAlternativeNameExtension([alternativeName(name)]),
      new x509.Extension(ACME_IDENTIFIER, true, Buffer.from([OCTETS, digest.length, ...digest])),
    ],
  });
  return `${certificate.toString('pem')}\n`;
}

/**
 * The identifier of a certificate in requests for its renewal information (RFC 9773, section 4.1); null for a certificate that does
 * not name its issuer's key.
 */
export function renewalId(certificatePem: string): string | null {
  const certificate = new x509.X509Certificate(certificatePem);
  const keyId = certificate.getExtension(x509.AuthorityKeyIdentifierExtension)?.keyId;
  if (keyId === undefined) return null;
  // As DER has it: positive numbers begin with a bit that is not set. The library leaves such a zero out.
  const digits = certificate.serialNumber.replace(/^(?=[89a-f])/i, '00');
  const serial = Buffer.from(digits, 'hex');
  return `${Buffer.from(keyId, 'hex').toString('base64url')}.${serial.toString('base64url')}`;
}

function alternativeName(name: string): x509.JsonGeneralName {
  if (isIP(name) === 0) return { type: 'dns', value: name };
  return { type: 'ip', value: isIPv6(name) ? canonicalIpv6(name) : name };
}

async function importedKeys(
  pem: string,
): Promise<{ keys: webcrypto.CryptoKeyPair; algorithm: typeof ECDSA | typeof RSA }> {
  const key = createPrivateKey(pem);
  const algorithm = key.asymmetricKeyType === 'rsa' ? RSA : ECDSA;
  const pkcs8 = key.export({ type: 'pkcs8', format: 'der' });
  const spki = createPublicKey(key).export({ type: 'spki', format: 'der' });
  const [privateKey, publicKey] = await Promise.all([
    webcrypto.subtle.importKey('pkcs8', pkcs8, algorithm, false, ['sign']),
    webcrypto.subtle.importKey('spki', spki, algorithm, true, ['verify']),
  ]);
  return { keys: { privateKey, publicKey }, algorithm };
}
