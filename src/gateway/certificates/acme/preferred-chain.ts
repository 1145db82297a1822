import { X509Certificate } from 'node:crypto';

/** Whether the last certificate of a chain was issued by a CA with this common name, or is that CA's own. */
export function isIssuedBy(chainPem: string, commonName: string): boolean {
  const last = chainPem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g)?.at(-1);
  if (last === undefined) return false;
  const { issuer } = new X509Certificate(last);
  return issuer.split('\n').includes(`CN=${commonName}`);
}
