import 'reflect-metadata';
import { webcrypto } from 'node:crypto';
import { X509CertificateGenerator } from '@peculiar/x509';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const RSA = { name: 'RSASSA-PKCS1-v1_5', publicExponent: Uint8Array.of(1, 0, 1), hash: 'SHA-256' };

/**
 * A self-signed certificate and its key, both PEM.
 *
 * @param rsaBits of an RSA key, rather than one for P-256
 */
export async function selfSigned(name = 'CN=localhost', rsaBits?: number): Promise<{ cert: string; key: string }> {
  const algorithm = rsaBits === undefined ? ALGORITHM : { ...RSA, modulusLength: rsaBits };
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
  const certificate = await X509CertificateGenerator.createSelfSigned({ name, keys }, webcrypto);
  const key = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)).toString('base64');
  return {
    cert: certificate.toString('pem'),
    key: `-----BEGIN PRIVATE KEY-----\n${key.replace(/.{64}/g, '$&\n')}\n-----END PRIVATE KEY-----\n`,
  };
}
