import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { allOperations } from '../../src/management/operations.ts';
import { programMissing } from '../support/requirements.ts';
import { runSteps } from './api-steps.ts';
import type { Case, Client } from './client.ts';
import { withAgent } from './lab-agent.ts';
import { mustRun } from './program.ts';

const MODULE = 'github.com/ngrok/ngrok-api-go/v9';
const VERSION = 'v9.0.0';
const PROGRAM = './steps';

/** Operations of earlier versions of ngrok's API, which this client has no more, and those that only the gateway has. */
const UNKNOWN =
  /^(?:endpointConfigurations|enrolmentKeys|devices|auditEvents|people|shareLinks)\.|\.(?:detachHttps?EndpointConfiguration|checkDns)$/;

/** The client knows none of the gateway's targets of events. */
const OTHER_TARGETS = /^eventDestinations\.(?:create|get|update|delete)$/;

/** A case for each operation of the API that no step called. */
function untried(cases: readonly Case[]): Case[] {
  const tried = new Set(cases.map(({ name }) => name));
  const missing = allOperations().filter(({ id }) => !UNKNOWN.test(id) && !OTHER_TARGETS.test(id) && !tried.has(id));
  return missing.map(({ id }) => ({ name: id, status: 'failed', output: 'no step called it' }));
}

/** Opens a tunnel, so that the lists of what is online are not empty. */
async function openTunnel(agent: string): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`${agent}/tunnels`, { method: 'POST', headers, body: '{"forwards_to":8001}' });
  if (!answer.ok) throw new Error(`no tunnel: ${await answer.text()}`);
}

export const goApi: Client = {
  title: `Go API client ${MODULE} ${VERSION}`,
  what: 'every operation that it shares with the gateway; lists page by page; a filter is refused',
  needs: '`go`, proxy.golang.org',
  missing: () => programMissing('go', 'version'),
  async fetch(sources) {
    copyFileSync('test/interop/programs/go-api/main.go', join(sources, 'main.go'));
    writeFileSync(join(sources, 'go.mod'), `module steps\n\ngo 1.25.0\n\nrequire ${MODULE} ${VERSION}\n`);
    const env = { ...process.env, GOWORK: 'off', GOFLAGS: '-mod=mod' };
    await mustRun(['go', 'build', '-o', PROGRAM, '.'], { cwd: sources, env });
  },
  run: (lab, sources) =>
    withAgent(lab, sources, async (agent) => {
      await openTunnel(agent);
      const cases = await runSteps([PROGRAM], lab, sources);
      return [...cases, ...untried(cases)];
    }),
  expected: {},
};
