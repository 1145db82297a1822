import { Ngrok } from '@ngrok/ngrok-api';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { BASE_URL, type ManagementServer, startManagementServer } from '../../support/management-server.ts';

let server: ManagementServer;
beforeAll(async () => {
  server = await startManagementServer();
});
afterAll(() => server.close());

const KEY = { authorization: '' };
const raw = async (method: string, path: string, headers: Record<string, string> = {}) => {
  const authorized = { authorization: `Bearer ${server.apiKey}`, 'ngrok-version': '2' };
  const res = await fetch(server.url + path, { method, headers: { ...authorized, ...headers } });
  return { status: res.status, body: await res.json() };
};

it('every list of ngrok’s TypeScript client answers', async () => {
  const client = new Ngrok({ baseUrl: server.url, apiToken: server.apiKey });
  const { backends, edges, ...others } = client;
  const all: Record<string, unknown> = { ...others, ...backends, ...edges };
  const isListed = (resource: unknown) => typeof resource === 'object' && resource !== null && 'list' in resource;
  const lists = Object.entries(all).filter(([, resource]) => isListed(resource));
  const ofOne = ['eventSources', 'edgesHttpsRoutes'];
  const answers = lists
    .filter(([name]) => !ofOne.includes(name))
    .map(async ([name, resource]) => [name, Array.isArray(await (resource as { list(): unknown }).list())]);
  expect(answers.length).toBeGreaterThan(25);
  for (const [name, isList] of await Promise.all(answers)) expect([name, isList]).toEqual([name, true]);
});

it('a list of a kind that the gateway does not have is empty, with an API key', async () => {
  const path = '/edges/https?limit=10';
  const uri = `${BASE_URL}/edges/https`;
  expect(await raw('GET', path)).toEqual({ status: 200, body: { https_edges: [], uri, next_page_uri: null } });
  expect((await raw('GET', path, KEY)).status).toBe(403);
});

it.each([
  ['POST', '/backends/static'],
  ['GET', '/edges/https/edghts_1'],
  ['PUT', '/edges/https/edghts_1/routes/edghtsrt_1/backend'],
  ['DELETE', '/ssh_credentials/sshcr_1'],
  ['GET', '/abuse_reports'],
])('%s %s answers 404 with the code for kinds that the gateway does not have', async (method, path) => {
  expect(await raw(method, path)).toMatchObject({ status: 404, body: { error_code: 'ERR_GATEWAY_NOT_SUPPORTED' } });
});

it('a path that ngrok’s API does not have stays unknown', async () => {
  expect((await raw('GET', '/edges/httpsx')).body).not.toMatchObject({ error_code: 'ERR_GATEWAY_NOT_SUPPORTED' });
});
