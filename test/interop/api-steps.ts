import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { issueCertificate } from '../support/certificates.ts';
import type { Case } from './client.ts';
import type { Lab } from './lab.ts';
import { run } from './program.ts';

const GIVEN = 'given.json';

/**
 * Runs a program that calls the management API step by step, and prints `{"name", "failure"}` after each step.
 *
 * @param command gets the path of a JSON file as its last argument: `ca`, `certificate` and `key`, in PEM, and the
 *   gateway's `domain`
 */
export async function runSteps(command: string[], lab: Lab, sources: string): Promise<Case[]> {
  const { certificatePem: ca } = await issueCertificate({ subject: 'CN=A certificate authority', ca: true });
  const leaf = await issueCertificate({ subject: 'CN=uploaded.example.com', names: ['uploaded.example.com'] });
  writeFileSync(
    join(sources, GIVEN),
    JSON.stringify({ ca, certificate: leaf.certificatePem, key: leaf.privateKeyPem, domain: lab.domain }),
  );
  const { code, stdout, output } = await run([...command, GIVEN], { cwd: sources, env: lab.env });
  const steps = stdout.split('\n').filter((line) => line.startsWith('{'));
  const cases = steps.map((line): Case => {
    const { name, failure } = JSON.parse(line) as { name: string; failure: string | null };
    return { name, status: failure === null ? 'passed' : 'failed', output: failure ?? '' };
  });
  return code === 0 ? cases : [...cases, { name: 'all steps', status: 'failed', output }];
}
