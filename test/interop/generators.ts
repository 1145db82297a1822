import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { firstOf, programMissing } from '../support/requirements.ts';
import type { Case, Client } from './client.ts';
import type { Lab } from './lab.ts';
import { withAgent } from './lab-agent.ts';
import { mustRun, run } from './program.ts';
import { createVenv, inVenv } from './venv.ts';

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

/** A generator of Go clients. */
interface GoGenerator extends Pick<Client, 'title' | 'what' | 'needs' | 'missing'> {
  /** Fetches the generator into a folder. */
  install: string[];
  /** The module that its output imports, with its version. */
  imports: string;
  /** A shell command that generates the package `$0` from the document `$0.json` into the folder `$0`. */
  generate: string;
}

function goClient({ install, imports, generate, ...about }: GoGenerator): Client {
  return {
    ...about,
    async fetch(sources) {
      writeFileSync(join(sources, 'go.mod'), 'module generated\n\ngo 1.24.0\n');
      const options = { cwd: sources, env: { ...process.env, GOWORK: 'off', GOFLAGS: '-mod=mod', GOBIN: sources } };
      await mustRun(install, options);
      await mustRun(['go', 'get', imports], options);
    },
    run: (lab, sources) =>
      both(
        lab,
        sources,
        (api, url) => ({
          generate: ['sh', '-c', `curl -fsS "$1/openapi.json" > "$0.json" && mkdir "$0" && ${generate}`, api, url],
          compile: ['go', 'build', `./${api}`],
        }),
        { ...lab.env, GOFLAGS: '-mod=mod', GOPROXY: 'off', CURL_CA_BUNDLE: lab.caFile },
      ),
    expected: {},
  };
}

const oapiCodegen = goClient({
  title: 'oapi-codegen 2.8.2',
  what: 'both OpenAPI documents: the generated clients compile',
  needs: '`go`, proxy.golang.org',
  missing: () => programMissing('go', 'version'),
  install: ['go', 'install', 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2'],
  imports: 'github.com/oapi-codegen/runtime@v1.8.0',
  generate: './oapi-codegen -generate types,client -package "$0" -o "$0/client.go" "$0.json"',
});

const JAR = 'openapi-generator-cli-7.25.0.jar';

const openapiGenerator = goClient({
  title: 'openapi-generator 7.25.0',
  what: 'both OpenAPI documents, which it finds valid: the generated Go clients compile',
  needs: '`java`, `mvn`, `go`, repo1.maven.org, proxy.golang.org',
  missing: () =>
    firstOf(programMissing('java', '-version'), programMissing('mvn', '-version'), programMissing('go', 'version')),
  install: [
    ...['mvn', '--batch-mode', 'dependency:copy', '-DoutputDirectory=.'],
    '-Dartifact=org.openapitools:openapi-generator-cli:7.25.0:jar',
  ],
  imports: 'gopkg.in/validator.v2@v2.0.1',
  generate:
    `java -jar ${JAR} generate -g go -i "$0.json" -o "$0" --package-name "$0" ` +
    '--global-property models,apis,supportingFiles,modelTests=false,apiTests=false && rm "$0/go.mod"',
});

export const openapi: Client[] = [pythonClient, oapiCodegen, openapiGenerator];
