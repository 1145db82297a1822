import { createPrivateKey, generateKeyPair, X509Certificate } from 'node:crypto';
import { promisify } from 'node:util';

const makeKeyPair = promisify(generateKeyPair);

/**
 * Generates a certificate's private key off the main thread: 4096-bit RSA takes a Pi many seconds.
 *
 * @returns PKCS #8 as PEM
 */
export async function makePrivateKey(type: 'rsa' | 'ecdsa'): Promise<string> {
  const { privateKey } =
    type === 'rsa'
      ? await makeKeyPair('rsa', { modulusLength: 4096 })
      : await makeKeyPair('ec', { namedCurve: 'P-256' });
  return privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
}

/** Whether the first certificate of a chain matches the domain and the private key. */
export function fits(certificatePem: string, privateKeyPem: string, domain: string): boolean {
  const leaf = new X509Certificate(certificatePem);
  const name = domain.replace(/^\*/, 'any');
  return leaf.checkPrivateKey(createPrivateKey(privateKeyPem)) && leaf.checkHost(name) !== undefined;
}
