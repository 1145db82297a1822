import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { issueCertificate } from '../support/certificates.ts';
import { programMissing } from '../support/requirements.ts';
import type { Case, Client } from './client.ts';
import { run } from './program.ts';
import { createVenv, inVenv } from './venv.ts';

const VERSION = '0.19.0';
const PROGRAM = 'steps.py';
const GIVEN = 'given.json';

export const pythonApi: Client = {
  title: `Python API client ngrok-api ${VERSION}`,
  what: 'every resource that the gateway has: create, get, list, update, delete',
  needs: '`python3`, pypi.org',
  missing: () => programMissing('python3', '--version'),
  async fetch(sources) {
    await createVenv(sources, [`ngrok-api==${VERSION}`]);
    copyFileSync('test/interop/programs/python-api.py', join(sources, PROGRAM));
  },
  async run(lab, sources) {
    const { certificatePem: ca } = await issueCertificate({ subject: 'CN=A certificate authority', ca: true });
    const leaf = await issueCertificate({ subject: 'CN=uploaded.example.com', names: ['uploaded.example.com'] });
    const given = { ca, certificate: leaf.certificatePem, key: leaf.privateKeyPem };
    writeFileSync(join(sources, GIVEN), JSON.stringify(given));
    const options = { cwd: sources, env: lab.env };
    const { code, stdout, output } = await run([inVenv(sources, 'python'), PROGRAM, GIVEN], options);
    const steps = stdout.split('\n').filter((line) => line.startsWith('{'));
    const cases = steps.map((line): Case => {
      const { name, failure } = JSON.parse(line) as { name: string; failure: string | null };
      return { name, status: failure === null ? 'passed' : 'failed', output: failure ?? '' };
    });
    return code === 0 ? cases : [...cases, { name: 'all steps', status: 'failed', output }];
  },
  expected: {},
};
