import { createSecureServer, createServer, type ServerHttp2Stream } from 'node:http2';
import { createServer as createTcpServer } from 'node:net';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { agentSettings, getPublic, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { serving } from '../support/loopback.ts';
import { selfSigned } from '../support/self-signed.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.close());

/** An agent in a folder of its own, or in that of an earlier one. */
async function startAgent(folder = temporaryFolder()) {
  const agent = AgentProcess.inTest(folder, {
    ...agentSettings(gateway),
    AGENT_VERIFY_UPSTREAM_TLS: 'false',
  });
  const api = await agent.ready();
  const open = async (body: object): Promise<Record<string, unknown>> => {
    const answer = await fetch(`${api}/tunnels`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const tunnel = (await answer.json()) as Record<string, unknown>;
    expect([answer.status, tunnel.msg, tunnel.notice]).toEqual([200, undefined, undefined]);
    return tunnel;
  };
  return { agent, api, folder, open };
}

const get = async (host: string) => (await getPublic(gateway, `https://${host}`)).body;

it('an upstream that speaks only HTTP/2 answers, in plain text and through TLS', async () => {
  const { api, open } = await startAgent();
  const answer = (stream: ServerHttp2Stream) => stream.end(`h2 ${stream.session?.encrypted}`);
  const plain = await serving(createServer().on('stream', answer));
  const secure = await serving(createSecureServer(await selfSigned()).on('stream', answer));
  await open({ forwards_to: plain, domain: 'plain.localhost', app_protocol: 'http2' });
  await open({ forwards_to: `https://localhost:${secure}`, domain: 'secure.localhost', app_protocol: 'http2' });
  expect([await get('plain.localhost'), await get('secure.localhost')]).toEqual(['h2 false', 'h2 true']);
  const listed = (await (await fetch(`${api}/tunnels`)).json()) as { status: string }[];
  expect(listed.map(({ status }) => status)).toEqual(['online', 'online']);
});

it('connections to the upstream start with a PROXY header, also after a restart of the agent', async () => {
  const first = await startAgent();
  const port = await serving(
    createTcpServer((socket) => {
      socket
        .on('error', () => {})
        .once('data', (bytes) => {
          const [header] = String(bytes).split('\r\n');
          socket.end(`HTTP/1.1 200 OK\r\ncontent-length: ${header?.length}\r\n\r\n${header}`);
        });
    }),
  );
  await first.open({ forwards_to: port, domain: 'real.localhost', proxy_proto: '1', metadata: 'hall 3' });
  expect(await get('real.localhost')).toMatch(/^PROXY TCP4 127\.0\.0\.1 127\.0\.0\.1 \d+ \d+$/);
  await first.agent.end('SIGKILL');
  await startAgent(first.folder);
  await expect.poll(() => get('real.localhost')).toMatch(/^PROXY TCP4/);
  const [bound] = gateway.endpoints.list().filter(({ host }) => host === 'real.localhost');
  expect(bound).toMatchObject({ metadata: 'hall 3', proxyProtocol: 1 });
});

it('tunnels of two agents share a URL, and one reaches the internal tunnel of another', async () => {
  const hello = await startHttpService((_, res) => void res.end('hello'));
  onTestFinished(() => hello.close());
  const [one, two] = await Promise.all([startAgent(), startAgent()]);
  await one.open({ forwards_to: hello.url, domain: 'inner.internal', binding: 'internal' });
  const forward = { type: 'forward-internal', config: { url: 'https://inner.internal' } };
  const shared = { domain: 'shared.localhost', pooling: true, forwards_to: hello.url };
  await one.open({ ...shared, policy: { on_http_request: [{ actions: [forward] }] } });
  await two.open(shared);
  expect([await get('shared.localhost'), await get('shared.localhost')]).toEqual(['hello', 'hello']);
  expect(gateway.endpoints.list().filter(({ pooled }) => pooled)).toHaveLength(2);
  expect((await getPublic(gateway, 'https://inner.internal')).status).toBe(404);
});
