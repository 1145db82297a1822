import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { programMissing } from '../support/requirements.ts';
import type { Case, Client } from './client.ts';
import type { Lab } from './lab.ts';
import { withAgent } from './lab-agent.ts';
import { mustRun, run } from './program.ts';
import { createVenv, inVenv } from './venv.ts';

const OAPI_CODEGEN = 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2';
/** What its output imports. */
const RUNTIME = 'github.com/oapi-codegen/runtime@v1.8.0';

/** Runs commands for both APIs, up to the first that fails. */
async function both(
  lab: Lab,
  sources: string,
  commands: (api: 'management' | 'agent', url: string) => Record<string, string[]>,
  env: Record<string, string | undefined>,
): Promise<Case[]> {
  const ofApi = async (api: 'management' | 'agent', url: string) => {
    const cases: Case[] = [];
    for (const [step, command] of Object.entries(commands(api, url))) {
      const { code, output } = await run(command, { cwd: sources, env });
      const name = `${api} API: ${step}`;
      cases.push(code === 0 ? { name, status: 'passed', output: '' } : { name, status: 'failed', output });
    }
    return cases;
  };
  const management = await ofApi('management', lab.apiUrl);
  return [...management, ...(await withAgent(lab, sources, (url) => ofApi('agent', url)))];
}

const pythonClient: Client = {
  title: 'openapi-python-client 0.29.1',
  what: 'both OpenAPI documents: every operation is generated, and generated operations are called',
  needs: '`python3`, pypi.org',
  missing: () => programMissing('python3', '--version'),
  async fetch(sources) {
    await createVenv(sources, ['openapi-python-client==0.29.1', 'ruff']);
    copyFileSync('test/interop/programs/generated.py', join(sources, 'call.py'));
  },
  run: (lab, sources) =>
    both(
      lab,
      sources,
      (api, url) => ({
        generate: [
          ...[inVenv(sources, 'openapi-python-client'), 'generate', '--meta', 'none', '--fail-on-warning'],
          ...['--url', `${url}/openapi.json`],
        ],
        call: [inVenv(sources, 'python'), 'call.py', api, url],
      }),
      { ...lab.env, PATH: `${join(sources, 'venv/bin')}:${lab.env.PATH}` },
    ),
  expected: {},
};

const goClient: Client = {
  title: 'oapi-codegen 2.8.2',
  what: 'both OpenAPI documents: the generated clients compile',
  needs: '`go`, proxy.golang.org',
  missing: () => programMissing('go', 'version'),
  async fetch(sources) {
    writeFileSync(join(sources, 'go.mod'), 'module generated\n\ngo 1.24.0\n');
    const options = { cwd: sources, env: { ...process.env, GOWORK: 'off', GOFLAGS: '-mod=mod', GOBIN: sources } };
    await mustRun(['go', 'install', OAPI_CODEGEN], options);
    await mustRun(['go', 'get', RUNTIME], options);
  },
  run: (lab, sources) =>
    both(
      lab,
      sources,
      (api, url) => ({
        generate: [
          ...[
            'sh',
            '-c',
            'mkdir "$0" && curl -fsS "$1/openapi.json" > "$0.json" && ./oapi-codegen $2 -package "$0" "$0.json"',
          ],
          ...[api, url, `-generate types,client -o ${api}/client.go`],
        ],
        compile: ['go', 'build', `./${api}`],
      }),
      { ...lab.env, GOFLAGS: '-mod=mod', GOPROXY: 'off', CURL_CA_BUNDLE: lab.caFile },
    ),
  expected: {},
};

export const openapi: Client[] = [pythonClient, goClient];
