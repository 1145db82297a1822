import { readFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, it, onTestFinished } from 'vitest';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';
import { persistTunnels } from '../faults/persisted-tunnels.ts';
import { PublicClient } from '../faults/public-client.ts';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { freePorts } from '../support/free-ports.ts';
import { agentSettings, getPublic, startTestGateway } from '../support/gateway.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { startHttpService } from '../support/http-service.ts';
import { NO_POSTGRES, PostgresServer } from '../support/postgres-server.ts';
import { unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const NAME = 'camera.localhost';
const KEY = Buffer.alloc(32, 7).toString('base64');

it('a gateway moves to PostgreSQL, goes on while that is away, is replaced by another machine, and moves back', {
  timeout: 240_000,
  ...unless(NO_POSTGRES),
}, async () => {
  const server = await PostgresServer.start();
  onTestFinished(() => server.end());
  const shared = { GATEWAY_DATABASE_URL: server.url(), GATEWAY_ENCRYPTION_KEY: KEY };
  const [first, second] = [temporaryFolder(), temporaryFolder()];
  const env: Record<string, string> = { GATEWAY_ENCRYPTION_KEY: KEY };
  const gateway = await GatewayProcess.start(first, env);
  onTestFinished(() => gateway.kill());
  const ports = {
    GATEWAY_SESSION_PORT: gateway.sessionAddress.split(':')[1] ?? '',
    GATEWAY_HTTPS_PORT: String(gateway.httpsPort),
    GATEWAY_HTTP_PORT: String(gateway.httpPort),
  };
  const { sessionCa } = gateway;
  const command = async (folder: string, settings: Record<string, string>, ...args: string[]) => {
    const { code, stdout, stderr } = await deviceAgent(['gateway', ...args], folder, { ...ports, ...settings });
    return { code, stdout: stdout.trim(), stderr };
  };
  const apiKey = (await command(first, env, 'api-key', 'create')).stdout;
  const agent = await startAgent(gateway);
  const client = new PublicClient(() => ({ httpsPort: gateway.httpsPort, sessionCa }));
  onTestFinished(() => client.close());
  const isServed = () => client.get(NAME).then((body) => body === 'seen');
  const reserve = (label: string) => ask(gateway, sessionCa, apiKey, { domain: `${label}.localhost` });
  expect((await reserve('before')).status).toBe(201);

  expect(await command(first, env, 'migrate', '--to', server.url())).toMatchObject({ code: 1, stdout: '' });
  await gateway.process.end();
  const moved = await command(first, { ...env, ...shared }, 'migrate');
  expect(moved).toMatchObject({ code: 0, stdout: '', stderr: expect.stringContaining('Start the gateway') });
  expect((await command(first, env)).stderr).toContain('this gateway used a shared database');
  Object.assign(env, shared);
  await gateway.restart();
  await until(isServed, 'the tunnel after the move', { everyMs: 50 });
  expect((await reserve('shared')).status).toBe(201);
  expect((await command(first, env, 'doctor', '--json')).stdout).toContain('the copy in DATA_DIR is the same');

  await server.kill();
  expect(await reserve('away')).toEqual({ status: 503, retryAfter: '5', code: 'ERR_NGROK_700' });
  expect(await isServed()).toBe(true);
  expect((await command(first, env, 'doctor', '--json')).stdout).toContain('so all changes are rejected: ');
  // Authenticates agents by its copy.
  await gateway.restart();
  await until(isServed, 'the tunnel without PostgreSQL', { everyMs: 50 });
  await server.restart();
  await until(async () => (await reserve('again')).status === 201, 'changes', { everyMs: 100 });

  await gateway.kill();
  const other = { ...shared, ...ports };
  const refused = await command(second, other);
  expect(refused).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('serves this shared database: stop it first'),
  });
  const nodes = JSON.parse((await command(second, other, 'nodes', '--json')).stdout) as { id: string }[];
  expect(nodes).toEqual([expect.objectContaining({ silent_s: expect.any(Number), behind: expect.any(Number) })]);
  await command(second, other, 'nodes', 'remove', nodes[0]?.id ?? '');
  const replacement = AgentProcess.start(second, other, ['gateway']);
  onTestFinished(() => replacement.end('SIGKILL').then(() => {}));
  await replacement.logged('gateway listening');
  expect(readFileSync(join(second, 'data', 'gateway', 'ca.pem'), 'utf8')).toBe(sessionCa);
  await until(isServed, 'the tunnel at the other machine', { everyMs: 50 });
  expect((await reserve('shared')).status).toBe(400);
  expect(agent.lines.filter(({ msg }) => msg === 'tunnel rejected')).toEqual([]);

  expect((await command(second, other, 'migrate', '--to', 'sqlite')).stderr).toContain('data folder in use');
  await replacement.end();
  const back = await command(second, other, 'migrate', '--to', 'sqlite', '--json');
  expect(JSON.parse(back.stdout)).toEqual({ database: 'sqlite', data_dir: join(second, 'data') });
  expect(commandsOn(second)).toEqual(['database_updated.v0', 'gateway_deleted.v0', 'database_updated.v0']);
  const left = await command(first, env);
  expect(left).toMatchObject({ code: 2, stderr: expect.stringContaining('is not used any more') });
  expect((await command(first, env, 'doctor', '--json')).stdout).toContain('is not used any more');
  const alone = AgentProcess.start(second, { ...ports, GATEWAY_ENCRYPTION_KEY: KEY }, ['gateway']);
  onTestFinished(() => alone.end('SIGKILL').then(() => {}));
  await alone.logged('gateway listening');
  await until(isServed, 'the tunnel after the move back', { everyMs: 50 });
  expect((await reserve('again')).status).toBe(400);
});

/** The types of what commands have done with the database and its gateways, oldest first. */
function commandsOn(folder: string): string[] {
  const { auditLog, database } = openGatewayStore({ dataDir: join(folder, 'data'), encryptionKey: KEY });
  const types = auditLog.page(null, 100).map(({ type }) => type);
  database.close();
  return types.filter((type) => /^(?:database|gateway)_/.test(type)).reverse();
}

async function startAgent(gateway: GatewayProcess): Promise<AgentProcess> {
  const upstream = await startHttpService((_request, res) => void res.end('seen'));
  onTestFinished(() => upstream.close());
  const folder = temporaryFolder();
  const { port } = new URL(upstream.url);
  persistTunnels(folder, [
    { domain: NAME, forwards_to: `localhost:${port}`, url: `https://${NAME}:${gateway.httpsPort}` },
  ]);
  const agent = AgentProcess.start(folder, agentSettings(gateway));
  onTestFinished(() => agent.end('SIGKILL').then(() => {}));
  await agent.ready();
  return agent;
}

/** Reserves a domain. */
async function ask({ httpsPort }: GatewayProcess, ca: string, apiKey: string, body: object) {
  const headers = { authorization: `Bearer ${apiKey}`, 'ngrok-version': '2', 'content-type': 'application/json' };
  return new Promise<{ status: number; retryAfter?: string; code?: string }>((resolve, reject) => {
    const address = { host: '127.0.0.1', port: httpsPort, servername: 'api.localhost', ca, path: '/reserved_domains' };
    const host = `api.localhost:${httpsPort}`;
    const req = request({ ...address, agent: false, method: 'POST', headers: { ...headers, host } }, async (res) => {
      const answer = JSON.parse(await text(res)) as { error_code?: string };
      const retryAfter = res.headers['retry-after'];
      const code = answer.error_code;
      resolve({ status: res.statusCode ?? 0, ...(retryAfter && { retryAfter }), ...(code && { code }) });
    });
    req.on('error', reject).end(JSON.stringify(body));
  });
}

it(
  'init sets up a gateway on an empty shared database, and asks for the key of one in use',
  unless(NO_POSTGRES),
  async () => {
    const server = await PostgresServer.start();
    onTestFinished(() => server.end());
    const [first, second] = [temporaryFolder(), temporaryFolder()];
    const { first: port } = await freePorts(2);
    const args = ['gateway', 'init', '--no-service', '--domain', 'localhost', '--database', server.url()];
    args.push('--https-port', String(port), '--http-port', String(port + 1), '--json');
    const made = await deviceAgent(args, first);
    expect(made.code, made.stderr).toBe(0);
    const settings = readFileSync(join(first, '.env'), 'utf8');
    expect(settings).toContain(`GATEWAY_DATABASE_URL=${server.url()}\n`);
    const key = /^GATEWAY_ENCRYPTION_KEY=(.+)$/m.exec(settings)?.[1] ?? '';
    expect(Buffer.from(key, 'base64')).toHaveLength(32);
    const refused = await deviceAgent(args, second);
    expect([refused.code, refused.stderr]).toEqual([
      2,
      expect.stringContaining('set GATEWAY_ENCRYPTION_KEY to their key'),
    ]);
    const keys = await deviceAgent(['gateway', 'api-key', 'list', '--json'], first);
    expect(JSON.parse(keys.stdout)).toEqual([expect.objectContaining({ description: 'gateway init' })]);
    expect((await deviceAgent(args, second, { GATEWAY_ENCRYPTION_KEY: key })).code).toBe(0);
    expect(readFileSync(join(second, 'data/gateway/ca.pem'), 'utf8')).toBe(
      readFileSync(join(first, 'data/gateway/ca.pem'), 'utf8'),
    );
  },
);

it('the metrics say when the shared database cannot be used', unless(NO_POSTGRES), async () => {
  const server = await PostgresServer.start();
  onTestFinished(() => server.end());
  const gateway = await startTestGateway({ databaseUrl: server.url(), encryptionKey: KEY });
  onTestFinished(() => gateway.close());
  const { token } = await gateway.store.database.write(() => issueApiKey(gateway.store, {}));
  const isAway = async () => {
    const { body } = await getPublic(gateway, `${gateway.apiUrl}/metrics`, { authorization: `Bearer ${token}` });
    return /^device_agent_gateway_condition\{condition="shared_database"\} (.*)$/m.exec(body)?.[1];
  };
  expect(await isAway()).toBe('0');
  await server.kill();
  await until(async () => (await isAway()) === '1', 'the metric without it', { everyMs: 50 });
  await server.restart();
  await until(async () => (await isAway()) === '0', 'the metric afterwards', { everyMs: 50 });
});
