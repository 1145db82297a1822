import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** A program that uses the client; lines with type errors are marked. */
const PROGRAM = `
import {
  type Fetch, ManagementClient, type ManagementClientOptions, ManagementError, type ProvisionEvent, type ReservedDomain,
  provision,
} from 'device-agent/management';

declare const passedOn: number | undefined;
declare const ownFetch: Fetch;
/** Like undici and node-fetch: their types differ from the global fetch. */
interface OtherRequest {
  method?: string;
  headers?: [string, string][] | Record<string, string>;
  redirect?: 'error' | 'follow' | 'manual';
  signal?: AbortSignal | null;
  body?: string | Uint8Array | null;
  dispatcher?: object;
}
interface OtherAnswer { status: number; headers: { get(name: string): string | null; other: true }; text(): Promise<string> }
declare function otherFetch(url: string | URL, request?: OtherRequest): Promise<OtherAnswer>;
new ManagementClient({ apiKey: 'k', fetch });
new ManagementClient({ apiKey: 'k', fetch: otherFetch });
new ManagementClient({ apiKey: 'k', fetch: (url, request) => otherFetch(url, { ...request, dispatcher: {} }) });
const options: ManagementClientOptions = { apiKey: 'k', retries: passedOn, timeoutMs: passedOn, fetch: ownFetch };
const client = new ManagementClient(options);

export async function main(signal: AbortSignal): Promise<unknown> {
  const policy = { authority: 'letsencrypt', private_key_type: 'ecdsa' } as const;
  const domain: ReservedDomain = await client.reservedDomains.create(
    { domain: '*.a.example.com', certificate_management_policy: policy },
    { signal },
  );
  const target: string | null = domain.cname_target;
  const failing: string | null | undefined = domain.certificate_management_status?.provisioning_job?.error_code;
  const edge = await client.tlsEdges.create({ hostports: ['a.example.com:443'], tls_termination: {} });
  const { backend, enabled } = await client.tlsEdges.backend.replace(edge.id, { backend_id: 'bkdhr_1' });
  for await (const bot of client.botUsers.all({ limit: passedOn, beforeId: undefined, signal })) bot.active satisfies boolean;
  // @ts-expect-error unknown member
  await client.botUsers.create({ nam: 'x' });
  // @ts-expect-error the API refuses this value
  await client.tlsEdges.create({ tls_termination: { terminate_at: 'agent' } });
  // @ts-expect-error a domain's name cannot change
  await client.reservedDomains.update(domain.id, { domain: 'b.example.com' });
  // @ts-expect-error an API key is required
  new ManagementClient({ baseUrl: 'https://api.gateway.example.com' });
  try {
    const onProgress = (event: ProvisionEvent) => event.step === 'dns' && event.found;
    const plan = { domain: '*.a.example.com', bot: 'a', wait: undefined, rotate: undefined, privateKeyType: undefined };
    const { authtoken } = await provision(client, plan, { signal, onProgress, dnsServers: undefined, waitMs: passedOn });
    return authtoken.kind === 'created' ? authtoken.token : authtoken.kind;
  } catch (error) {
    if (error instanceof ManagementError && error.hasCode(413)) return error.status satisfies number | null;
    return [target, failing, backend.uri, enabled];
  }
}
`;

/** The programs of a page. */
function programsOf(page: string): string[] {
  const blocks = readFileSync(page, 'utf8').matchAll(/^```js\n(.*?)^```$/gms);
  return [...blocks].map(([, program = '']) => program).filter((program) => program.includes('new ManagementClient('));
}

const DOCUMENTED = programsOf('docs/management-client.md');
/** The part of undici that is used; it is not installed. */
const UNDICI = `declare module 'undici' {
  class ProxyAgent { constructor(url: string) }
  function fetch(url: string, request: object): Promise<Response>;
}`;

const run = promisify(execFile);

it.each([
  ['node16', 'node16', 'module', [PROGRAM, ...DOCUMENTED]],
  ['bundler', 'esnext', 'module', [PROGRAM]],
  ['nodenext', 'nodenext', 'commonjs', [PROGRAM]],
])(
  'has types that are right for programs with moduleResolution %s',
  async (moduleResolution, module, type, programs) => {
    expect(DOCUMENTED.length).toBeGreaterThan(1);
    const folder = temporaryFolder();
    const installed = join(folder, 'node_modules', 'device-agent');
    mkdirSync(installed, { recursive: true });
    // Without its dependencies, and outside of the project: it finds no zod.
    const { stdout: packed } = await run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder]);
    const tarball = join(folder, JSON.parse(packed)[0].filename);
    await run('tar', ['-xzf', tarball, '-C', installed, '--strip-components=1']);
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ type }));
    for (const [at, program] of programs.entries()) writeFileSync(join(folder, `program-${at}.ts`), program);
    writeFileSync(join(folder, 'undici.d.ts'), UNDICI);
    const typeRoots = [resolve('node_modules/@types')];
    const compilerOptions = {
      strict: true,
      skipLibCheck: false,
      noEmit: true,
      target: 'es2022',
      lib: ['es2022'],
      types: ['node'],
      typeRoots,
    };
    const config = {
      compilerOptions: { ...compilerOptions, module, moduleResolution, exactOptionalPropertyTypes: true },
    };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
    const tsc = resolve('node_modules/typescript/bin/tsc');
    const { stdout } = await run(process.execPath, [tsc, '-p', folder]).catch((error) => error);
    expect(stdout).toBe('');
  },
);
