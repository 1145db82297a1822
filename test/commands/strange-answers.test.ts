import { once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { deleteTunnel, showTunnel } from '../../src/commands/tunnels/tunnels.ts';
import { listTunnels } from '../../src/commands/tunnels/tunnels-list.ts';

afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

/** Starts a server at the agent's address; resolves with the list of its requests. */
async function listen(listener: RequestListener, host = '127.0.0.1'): Promise<IncomingMessage[]> {
  const requests: IncomingMessage[] = [];
  const server = createServer((req, res) => {
    requests.push(req);
    listener(req, res);
  });
  server.listen(0, host);
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  vi.stubEnv('AGENT_PORT', String((server.address() as AddressInfo).port));
  return requests;
}

describe('the API token', () => {
  const noTunnels: RequestListener = (_req, res) => res.end('[]');

  it.each([
    ['127.0.0.1', undefined],
    ['0.0.0.0', 'Bearer a-token-of-my-own'],
  ])('with AGENT_HOST=%s is sent as %s', async (host, authorization) => {
    vi.stubEnv('AGENT_HOST', host);
    vi.stubEnv('AGENT_API_TOKEN', 'a-token-of-my-own');
    vi.spyOn(process.stdout, 'write').mockReturnValue(true);
    const requests = await listen(noTunnels, host);
    await listTunnels({});
    expect(requests.map(({ headers }) => headers.authorization)).toEqual([authorization]);
  });
});

it('a 401 names DATA_DIR and AGENT_API_TOKEN', async () => {
  const body = { error_code: 'ERR_AGENT_UNAUTHORIZED', status_code: 401, msg: 'the token is wrong', details: {} };
  await listen((_req, res) => res.writeHead(401).end(JSON.stringify(body)));
  await expect(listTunnels({})).rejects.toMatchObject({
    exitCode: 1,
    message: expect.stringMatching(/^the token is wrong: .*DATA_DIR.*AGENT_API_TOKEN \(ERR_AGENT_UNAUTHORIZED\)$/),
  });
});

it.each(['', '.', '..'])('the tunnel name "%s" is rejected without a request', async (name) => {
  const requests = await listen((_req, res) => res.end('[]'));
  for (const command of [() => showTunnel(name, {}), () => deleteTunnel(name, {})]) {
    await expect(command()).rejects.toMatchObject({
      exitCode: 2,
      message: expect.stringContaining('not a tunnel name'),
    });
  }
  expect(requests).toEqual([]);
});

describe('an unexpected response', () => {
  it.each([
    [404, 'text/html', '<h1>Not found</h1>'],
    [404, 'application/json', '{"detail":"Not found"}'],
    [200, 'text/html', '<h1>Welcome</h1>'],
    [500, 'application/json', 'null'],
  ])('%i %s %s exits with 3, not as a missing tunnel', async (status, type, body) => {
    await listen((_req, res) => res.writeHead(status, { 'content-type': type }).end(body));
    for (const command of [() => showTunnel('cam', {}), () => deleteTunnel('cam', {})]) {
      await expect(command()).rejects.toMatchObject({
        name: 'OperatorError',
        exitCode: 3,
        message: expect.stringContaining('not a device agent'),
      });
    }
  });

  it('that is incomplete exits with 3', async () => {
    await listen((req, res) => {
      res.writeHead(200, { 'content-length': 100 }).write('[', () => req.socket.destroy());
    });
    await expect(listTunnels({})).rejects.toMatchObject({
      exitCode: 3,
      message: expect.stringContaining('incomplete answer'),
    });
  });

  it('that does not arrive exits with 3 and names the timeout', async () => {
    vi.spyOn(AbortSignal, 'timeout').mockReturnValue(AbortSignal.abort(new Error('over')));
    await listen(() => {});
    await expect(listTunnels({})).rejects.toMatchObject({ exitCode: 3, message: expect.stringContaining('45 s') });
  });
});

it('AGENT_PORT=0 exits with an error: the port is unknown', async () => {
  vi.stubEnv('AGENT_PORT', '0');
  await expect(listTunnels({})).rejects.toMatchObject({
    exitCode: 2,
    message: expect.stringContaining('set AGENT_PORT'),
  });
});
