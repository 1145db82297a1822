import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { messageOf } from '../lib/errors.ts';
import type { Parsed, VariableName } from './variables.ts';

/**
 * Reads a file that contains only a secret.
 *
 * @param name variable with the file's path, for `problems`
 * @returns the secret; empty after a problem
 */
export function readSecretFile(name: VariableName, file: string, problems: string[]): string {
  try {
    const value = readFileSync(file, 'utf8').trim();
    if (value === '') problems.push(`${name}=${file}: the file is empty`);
    else if (/[^\x21-\x7e]/.test(value))
      problems.push(`${name}=${file}: the file must contain a single line without spaces`);
    else return value;
  } catch (error) {
    problems.push(`${name}=${file}: ${messageOf(error)}`);
  }
  return '';
}

/** Reads the PEM file of a variable; returns null when the variable is not set or the file is unreadable. */
export function readCertificateFile(
  name:
    | 'NGROK_CA_CERT'
    | 'AGENT_TIME_CA'
    | 'GATEWAY_ACME_CA_CERT'
    | 'GATEWAY_ACME_ROOT_CERT'
    | 'MANAGEMENT_API_CA_CERT',
  values: Parsed,
  path: (value: string) => string,
  problems: string[],
): Buffer | null {
  const set = values[name];
  if (set === null) return null;
  const file = path(set);
  try {
    const pem = readFileSync(file);
    if (!pem.includes('-----BEGIN CERTIFICATE-----'))
      problems.push(`${name}=${file}: the file contains no PEM certificate`);
    else if (!isIntact(pem))
      problems.push(`${name}=${file}: the certificate in the file is damaged; copy the file again`);
    return pem;
  } catch (error) {
    problems.push(`${name}=${file}: ${messageOf(error)}`);
    return null;
  }
}

/**
 * The CAs that Node.js trusts besides its own: not among `rootCertificates`, and asked for by no function of Node.js 20.
 *
 * @returns empty when there are none; Node.js itself warns of a file that it cannot read
 */
export function extraAuthorities({ NODE_EXTRA_CA_CERTS: file }: NodeJS.ProcessEnv): string {
  if (!file) return '';
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/** TLS ignores a truncated file silently. Only the first certificate is checked: bundles of CAs are large. */
function isIntact(pem: Buffer): boolean {
  try {
    new X509Certificate(pem);
    return true;
  } catch {
    return false;
  }
}
