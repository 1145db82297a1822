import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { AgentProcess } from '../support/agent-process.ts';
import { programMissing } from '../support/requirements.ts';
import type { Case, Client } from './client.ts';
import { casesOfJunit } from './junit.ts';
import type { Lab } from './lab.ts';
import { run } from './program.ts';
import { createVenv, inVenv } from './venv.ts';

/** Rules of the document that every answer must keep. What requests are refused is not the document's subject. */
const CHECKS = 'not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance';
const EXAMPLES = '25';

/** Calls every operation of an OpenAPI document with values generated from nothing but the document. */
async function callAll(sources: string, title: string, url: string, options: string[], lab: Lab): Promise<Case[]> {
  const report = join(sources, `${title.replaceAll(' ', '-')}.xml`);
  const { output } = await run(
    [
      ...[inVenv(sources, 'schemathesis'), 'run', `${url}/openapi.json`, '--checks', CHECKS, '--no-color'],
      ...['--phases', 'examples,coverage,fuzzing', '--max-examples', EXAMPLES, '--generation-deterministic'],
      ...['--continue-on-failure', '--report', 'junit', '--report-junit-path', report, ...options],
    ],
    { cwd: sources, env: lab.env },
  );
  const cases = casesOfJunit(readFileSync(report, 'utf8'), (name) => `${title}: ${name}`);
  return cases.length > 0 ? cases : [{ name: title, status: 'failed', output }];
}

export const schemathesis: Client = {
  title: 'schemathesis 4.32.5',
  what: `every operation of both OpenAPI documents, ${EXAMPLES} generated requests and more each: no 5xx, no undocumented status, no answer against its schema`,
  needs: '`python3`, pypi.org',
  missing: () => programMissing('python3', '--version'),
  fetch: (sources) => createVenv(sources, ['schemathesis==4.32.5']),
  async run(lab, sources) {
    const management = ['--tls-verify', lab.caFile, '--header', `Authorization: Bearer ${lab.apiKey}`];
    const cases = await callAll(sources, 'management API', lab.apiUrl, management, lab);
    const folder = join(sources, 'device');
    mkdirSync(folder);
    const agent = AgentProcess.start(folder, {
      NGROK_AUTHTOKEN: lab.authtoken,
      NGROK_SERVER_ADDR: `connect.${lab.domain}:443`,
      NGROK_CA_CERT: lab.caFile,
    });
    try {
      const url = await agent.ready();
      return [...cases, ...(await callAll(sources, 'agent API', url, [], lab))];
    } finally {
      await agent.end();
    }
  },
  expected: {},
};
