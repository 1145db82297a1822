import { writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { CONNECTORS } from '../support/connectors.ts';
import { agentSettings, getPublic, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { serving } from '../support/loopback.ts';
import { selfSigned } from '../support/self-signed.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.close());

describe.each(CONNECTORS)('with the connector %s', (connector) => {
  /** An agent in a folder of its own, or in that of an earlier one. */
  async function startAgent(folder = temporaryFolder()) {
    const agent = AgentProcess.inTest(folder, { ...agentSettings(gateway), AGENT_CONNECTOR: connector });
    const api = await agent.ready();
    const send = async (method: string, path: string, body?: object) => {
      const headers = { 'content-type': 'application/json' };
      const answer = await fetch(api + path, { method, headers, body: body ? JSON.stringify(body) : null });
      return (await answer.json()) as Record<string, unknown>;
    };
    return { agent, folder, send };
  }

  const visit = async (host: string) => {
    const { status, body } = await getPublic(gateway, `https://${host}`, { accept: 'application/json' });
    return { status, body };
  };

  it('an old upstream is refused in words everywhere, until its tunnel allows it, also after a restart', async () => {
    const { agent, folder, send } = await startAgent();
    const own = await selfSigned('CN=localhost');
    const old = { minVersion: 'TLSv1', maxVersion: 'TLSv1', ciphers: 'ALL:@SECLEVEL=0' } as const;
    const port = await serving(createServer({ ...own, ...old }, (_request, response) => response.end('picture')));
    const host = `old-${connector}.localhost`;
    const path = `/tunnels/${host}`;
    const words = 'speaks TLS 1.0 only';
    const { notice } = await send('POST', '/tunnels', { forwards_to: `https://localhost:${port}`, domain: host });
    expect(notice).toBe(
      `https://localhost:${port} ${words}: allow it with upstream_tls_min_version 1.0, which is weak`,
    );
    const refused = await visit(host);
    expect([refused.status, JSON.parse(refused.body)]).toMatchObject([
      502,
      { error_code: 'ERR_NGROK_8012', msg: `The agent is online, but its upstream ${words}.` },
    ]);
    expect(await send('GET', path)).toMatchObject({
      status: 'degraded',
      upstream: { state: 'tls_failed', reason: expect.stringContaining(words) },
    });
    expect(await agent.logged('TLS with upstream failed')).toMatchObject({ reason: expect.stringContaining(words) });

    const weak = { upstream_tls_min_version: '1.0' };
    expect(await send('PATCH', path, weak)).toMatchObject({
      ...weak,
      upstream: { state: 'tls_failed', reason: expect.stringContaining('self-signed') },
    });
    expect((await visit(host)).body).toContain('presents a self-signed certificate.');
    const trusted = { upstream_tls_ca_file: join(folder, 'camera.pem') };
    expect(await send('PATCH', path, trusted)).toMatchObject({
      details: { upstream_tls_ca_file: expect.stringContaining('ENOENT') },
    });
    writeFileSync(trusted.upstream_tls_ca_file, own.cert);
    expect(await send('PATCH', path, trusted)).toMatchObject({ ...weak, ...trusted, status: 'online' });
    expect(await visit(host)).toEqual({ status: 200, body: 'picture' });

    await agent.end('SIGKILL');
    const again = await startAgent(folder);
    await expect.poll(() => visit(host)).toEqual({ status: 200, body: 'picture' });
    await again.send('PATCH', path, { upstream_tls_min_version: null });
    expect((await visit(host)).status).toBe(502);
  });
});
