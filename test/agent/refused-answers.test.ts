import { readFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { RequestSummary } from '../../src/agent/api/inspection/inspection-reports.ts';
import { DEVICE_ANSWERS, tableDevice } from '../gateway/device-answers.ts';
import { AgentProcess } from '../support/agent-process.ts';
import { CONNECTORS } from '../support/connectors.ts';
import { agentSettings, getPublic, startTestGateway } from '../support/gateway.ts';
import { serving } from '../support/loopback.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const HOST = 'cam.localhost';
const REFUSED = DEVICE_ANSWERS.findIndex(({ body }) => body === null);

interface Place {
  httpsPort: number;
  ca: string;
}

/** An agent with a tunnel to a device whose answers are those of the table. */
async function setUp(env: Record<string, string>, gateway?: Place) {
  const agent = AgentProcess.inTest(temporaryFolder(), env);
  const api = await agent.ready();
  const call = async <T>(path: string, method = 'GET', body?: object) => {
    const sent = { method, headers: { 'content-type': 'application/json' }, body: body && JSON.stringify(body) };
    return (await (await fetch(`${api}${path}`, sent as RequestInit)).json()) as T;
  };
  const { addresses } = await call<{ addresses: Record<string, string> }>('/status');
  const place = gateway ?? {
    httpsPort: Number(addresses.gateway_https?.split(':').at(-1)),
    ca: readFileSync(String(addresses.gateway_ca), 'utf8'),
  };
  await call('/tunnels', 'POST', { forwards_to: await serving(tableDevice()), domain: HOST, policy: {} });
  const get = (path: string) =>
    getPublic({ httpsPort: place.httpsPort, sessionCa: place.ca }, `https://${HOST}${path}`);
  return { agent, call, get };
}

type Settled = Awaited<ReturnType<typeof setUp>>;

async function expectNamedState({ agent, call, get }: Settled) {
  const upstream = async () =>
    (await call<{ status: string; upstream: { state: string; reason: string | null } }>('/tunnels/cam')).upstream;
  expect((await upstream()).state).toBe('answers');
  expect((await get(`/${REFUSED}`)).status).toBe(502);
  await until(async () => (await upstream()).state === 'wrong_protocol', 'the state of the upstream names the fault', {
    everyMs: 20,
  });
  // The device has answered the agent's own request properly meanwhile.
  expect((await upstream()).reason).toMatch(DEVICE_ANSWERS[REFUSED]?.fault ?? /^$/);
  expect((await call<{ status: string }>('/tunnels/cam')).status).toBe('degraded');
  await agent.logged('upstream sends invalid responses');
}

/** @param reported whether the gateway reports requests, so that the agent knows what clients got */
async function expectNamedRequests({ call, get }: Settled, reported: boolean) {
  await call('/tunnels/cam/inspection', 'PUT', {});
  await Promise.all(DEVICE_ANSWERS.map((_, at) => get(`/${at}`)));
  const isSettled = ({ state, answered_by }: RequestSummary) => state !== 'open' && (!reported || answered_by !== null);
  const paths = DEVICE_ANSWERS.map((_, at) => `/${at}`);
  // A request that met a connection that the device was closing is sent again: one attempt has the report, the last one the answer.
  const requests = new Map<string, RequestSummary>();
  await until(
    async () => {
      const newestFirst = await call<RequestSummary[]>('/tunnels/cam/requests?limit=500');
      for (const request of newestFirst.filter(isSettled).reverse()) requests.set(request.path, request);
      return paths.every((path) => requests.has(path)) && newestFirst.every(({ state }) => state !== 'open');
    },
    'all requests are captured',
    { everyMs: 50 },
  );
  const shown = DEVICE_ANSWERS.map(({ what, fault }, at) => {
    const { state, status, error } = requests.get(`/${at}`) as RequestSummary;
    return [what, state, status, fault && String(error).match(fault) ? 'named' : error];
  });
  const expected = DEVICE_ANSWERS.map(({ what, body, status = 200 }) =>
    body === null ? [what, 'failed', reported ? 502 : null, 'named'] : [what, 'complete', status, null],
  );
  expect(shown).toEqual(expected);
}

describe.each(CONNECTORS)('an answer that the embedded gateway refuses, with the connector %s', (connector) => {
  it('is named by the state of the upstream and by the inspector', async () => {
    const settled = await setUp({ AGENT_CONNECTOR: connector });
    await expectNamedState(settled);
    await expectNamedRequests(settled, true);
  });
});

describe('an answer that a gateway elsewhere refuses', () => {
  const elsewhere = async (connector: string) => {
    const gateway = await startTestGateway();
    onTestFinished(() => gateway.close());
    const place = { httpsPort: gateway.httpsPort, ca: gateway.sessionCa };
    return setUp({ ...agentSettings(gateway), AGENT_CONNECTOR: connector }, place);
  };

  it('is named by both with the native connector', async () => {
    const settled = await elsewhere('native');
    await expectNamedState(settled);
    await expectNamedRequests(settled, true);
  });

  it('is named by the inspector with the SDK, which gets no reports', async () => {
    await expectNamedRequests(await elsewhere('sdk'), false);
  });
});
