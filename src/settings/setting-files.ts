import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { messageOf } from '../lib/errors.ts';
import type { Parsed, VariableName } from './variables.ts';

/**
 * Reads a file that holds a secret alone.
 *
 * @param name the variable that names the file, for `problems`
 * @returns the secret; empty when there is a problem
 */
export function readSecretFile(name: VariableName, file: string, problems: string[]): string {
  try {
    const value = readFileSync(file, 'utf8').trim();
    if (value === '') problems.push(`${name}=${file}: the file is empty`);
    else if (/[^\x21-\x7e]/.test(value))
      problems.push(`${name}=${file}: the file must contain a single line without spaces`);
    return value;
  } catch (error) {
    problems.push(`${name}=${file}: ${messageOf(error)}`);
    return '';
  }
}

/**
 * Reads the PEM file that a variable names.
 *
 * @returns null when the variable is not set, or there is a problem
 */
export function readCertificates(
  name: 'NGROK_CA_CERT' | 'GATEWAY_ACME_CA_CERT' | 'MANAGEMENT_API_CA_CERT',
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
    else if (!isSound(pem))
      problems.push(`${name}=${file}: the certificate in the file is damaged; copy the file again`);
    return pem;
  } catch (error) {
    problems.push(`${name}=${file}: ${messageOf(error)}`);
    return null;
  }
}

/** Of a file that was copied in part TLS would say nothing. The first stands for all: a system has many authorities. */
function isSound(pem: Buffer): boolean {
  try {
    new X509Certificate(pem);
    return true;
  } catch {
    return false;
  }
}
