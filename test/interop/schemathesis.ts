import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { programMissing } from '../support/requirements.ts';
import type { Case, Client } from './client.ts';
import { casesOfJunit } from './junit.ts';
import type { Lab } from './lab.ts';
import { withAgent } from './lab-agent.ts';
import { run } from './program.ts';
import { createVenv, inVenv } from './venv.ts';

/** Rules of the document that every answer must keep. What requests are refused is not the document's subject. */
const CHECKS = 'not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance';
const EXAMPLES = '25';
const PHASES = 'examples,coverage,fuzzing';
/** Answers that show more than the refusal of generated requests, as the agent's metrics name them. */
const ANSWERS = [
  'method="POST",route="/tunnels",status="200"',
  'method="GET",route="/tunnels/:url_part",status="200"',
  'method="DELETE",route="/tunnels/:url_part",status="204"',
];

/** Calls every operation of an OpenAPI document with values generated from nothing but the document. */
async function callAll(
  sources: string,
  title: string,
  url: string,
  phases: string,
  options: string[],
  lab: Lab,
): Promise<Case[]> {
  const report = join(sources, `${title.replaceAll(' ', '-')}.xml`);
  const { output } = await run(
    [
      ...[inVenv(sources, 'schemathesis'), 'run', `${url}/openapi.json`, '--checks', CHECKS, '--no-color'],
      ...['--phases', phases, '--max-examples', EXAMPLES, '--generation-deterministic'],
      ...['--continue-on-failure', '--report', 'junit', '--report-junit-path', report, ...options],
    ],
    { cwd: sources, env: lab.env },
  );
  const cases = casesOfJunit(readFileSync(report, 'utf8'), (name) => `${title}: ${name}`);
  return cases.length > 0 ? cases : [{ name: title, status: 'failed', output }];
}

/** Whether tunnels were created, shown and deleted. */
async function answersOfTunnels(url: string): Promise<Case> {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const missing = ANSWERS.filter((answer) => !metrics.includes(answer));
  return {
    name: 'agent API: tunnels are created, shown and deleted',
    status: missing.length === 0 ? 'passed' : 'failed',
    output: missing.join('\n'),
  };
}

export const schemathesis: Client = {
  title: 'schemathesis 4.32.5',
  what: `every operation of both OpenAPI documents, ${EXAMPLES} generated requests and more each: no 5xx, no undocumented status, no answer against its schema`,
  needs: '`python3`, pypi.org',
  missing: () => programMissing('python3', '--version'),
  fetch: (sources) => createVenv(sources, ['schemathesis==4.32.5']),
  async run(lab, sources) {
    const management = ['--tls-verify', lab.caFile, '--header', `Authorization: Bearer ${lab.apiKey}`];
    const cases = await callAll(sources, 'management API', lab.apiUrl, PHASES, management, lab);
    const ofAgent = await withAgent(lab, sources, async (url) => [
      // Follows the links from tunnels that were created. Those of the management API would take an hour.
      ...(await callAll(sources, 'agent API', url, `${PHASES},stateful`, [], lab)),
      await answersOfTunnels(url),
    ]);
    return [...cases, ...ofAgent];
  },
  expected: {},
};
