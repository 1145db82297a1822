import { copyFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { allOperations } from '../../src/management/operations.ts';
import { programMissing } from '../support/requirements.ts';
import { runSteps } from './api-steps.ts';
import type { Case, Client } from './client.ts';
import { withAgent } from './lab-agent.ts';
import { mustRun } from './program.ts';

const MODULE = 'github.com/ngrok/ngrok-api-go';
const VERSION = 'v9.0.0';
/** Of the Kubernetes operator. */
const OPERATOR_VERSION = 'v7.8.0';
const SOURCES = 'test/interop/programs/go-api';
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

/** What both clients of the program have in common. */
const steps = {
  needs: '`go`, proxy.golang.org',
  missing: () => programMissing('go', 'version'),
  async fetch(sources: string) {
    for (const name of readdirSync(SOURCES)) copyFileSync(join(SOURCES, name), join(sources, name));
    const modules = [`${MODULE}/v9 ${VERSION}`, `${MODULE}/v7 ${OPERATOR_VERSION}`];
    writeFileSync(join(sources, 'go.mod'), `module steps\n\ngo 1.25.0\n\nrequire (\n${modules.join('\n')}\n)\n`);
    const env = { ...process.env, GOWORK: 'off', GOFLAGS: '-mod=mod' };
    await mustRun(['go', 'build', '-o', PROGRAM, '.'], { cwd: sources, env });
  },
  expected: {},
};

export const goApi: Client = {
  ...steps,
  title: `Go API client ${MODULE}/v9 ${VERSION}`,
  what: 'every operation that it shares with the gateway; lists page by page; a filter is refused',
  run: (lab, sources) =>
    withAgent(lab, sources, async (agent) => {
      await openTunnel(agent);
      const cases = await runSteps([PROGRAM], lab, sources);
      return [...cases, ...untried(cases)];
    }),
};

export const operator: Client = {
  ...steps,
  title: `Calls of the Kubernetes operator 0.22, with ${MODULE}/v7 ${OPERATOR_VERSION}`,
  what: 'what its controllers send for domains, IP policies, endpoints and addresses, and what they expect: nothing to change in the next round, errors by code',
  run: (lab, sources) => runSteps([PROGRAM, 'operator'], lab, sources),
  expected: {
    'CloudEndpoint tls: unchanged in the next round':
      'the answer leaves out `:443`, as that of ngrok does: the operator sends the same update again in each round',
  },
};
