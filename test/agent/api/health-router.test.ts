import request from 'supertest';
import { describe, expect, it } from 'vitest';
import { setUpApi, TOKEN } from '../../support/api-set-up.ts';
import { until } from '../../support/until.ts';

const device342 = { protocol: 'http', forwards_to: '8001', domain: 'device342.localhost' };

it('/healthz always answers 200, and /readyz only when the session and all tunnels are online', async () => {
  const { local, connector, tunnels } = await setUpApi();
  await request(local).post('/tunnels').send(device342);
  expect((await request(local).get('/readyz')).text).toBe('{"status":"ready"}\n');
  connector.goOffline();
  expect((await request(local).get('/healthz')).status).toBe(200);
  const res = await request(local).get('/readyz');
  expect(res.status).toBe(503);
  expect(res.body.details).toEqual({
    session: 'the session with gateway.test:443 is offline',
    tunnels: '1 of 1 tunnels are not online',
  });
  connector.goOnline();
  await until(() => tunnels.counts().online === 1, 'online');
  expect((await request(local).get('/readyz')).status).toBe(200);
  expect((await request(local).head('/readyz')).status).toBe(200);
});

it('GET /status answers with version, session, tunnels and addresses', async () => {
  const { local, connector } = await setUpApi();
  await request(local).post('/tunnels').send(device342);
  connector.goOffline();
  expect((await request(local).get('/status')).body).toEqual({
    version: '1.2.3',
    uptime_seconds: 42,
    session: {
      state: 'offline',
      since: expect.any(String),
      gateway: 'gateway.test:443',
      reconnects: 0,
      last_error: { code: null, message: 'connection lost' },
    },
    tunnels: { total: 1, online: 0, connecting: 0, degraded: 0, offline: 1, failed: 0 },
    remote_api: null,
    data_budget: null,
    storage: { last_error: null },
    clock: { source: 'system', system_ahead_seconds: null, problem: null },
    addresses: { api: '127.0.0.1:4040' },
  });
});

it('/readyz and /status count the agent’s own domain', async () => {
  const remoteApi = {
    url: 'https://agent.localhost:8443',
    status: {
      state: 'failed' as const,
      since: new Date('2026-08-01T00:00:00Z'),
      lastError: { code: 'ERR_NGROK_334', message: 'already online' },
    },
  };
  const { local } = await setUpApi({}, { remoteApi });
  const { status, body } = await request(local).get('/readyz');
  expect([status, body.details]).toEqual([
    503,
    {
      remote_api:
        "the agent's own domain https://agent.localhost:8443 is not online (failed): already online (ERR_NGROK_334)",
    },
  ]);
  expect((await request(local).get('/status')).body.remote_api).toEqual({
    url: remoteApi.url,
    status: 'failed',
    since: '2026-08-01T00:00:00.000Z',
    last_error: remoteApi.status.lastError,
  });
});

it('/readyz answers 503 while upstreams that hang hold most connections', async () => {
  const upstreams = {
    look: () => {
      upstreams.problem = '300 connections are still open';
    },
    problem: null as string | null,
  };
  const { local } = await setUpApi({}, { upstreams });
  const { status, body } = await request(local).get('/readyz');
  expect([status, body.details]).toEqual([503, { upstreams: '300 connections are still open' }]);
});

it('GET answers 200 with a body, even to If-None-Match: *', async () => {
  const { local } = await setUpApi();
  const { status, body } = await request(local).get('/tunnels').set('If-None-Match', '*');
  expect([status, body]).toEqual([200, []]);
});

describe('the metrics', () => {
  it('count tunnels, sessions and requests by side and route', async () => {
    const { local, remote, connector, tunnels } = await setUpApi();
    await request(local).post('/tunnels').send(device342);
    await request(remote).get('/tunnels/device342').auth(TOKEN, { type: 'bearer' });
    await request(remote).get('/tunnels');
    connector.goOffline();
    connector.goOnline();
    await until(() => tunnels.counts().online === 1, 'online');
    const { text } = await request(local).get('/metrics');
    for (const line of [
      'device_agent_tunnels{state="online"} 1',
      'device_agent_tunnels{state="failed"} 0',
      'device_agent_session_state{state="online"} 1',
      'device_agent_session_state{state="offline"} 0',
      'device_agent_session_reconnects_total 1',
      'device_agent_remote_api_state{state="failed"} 1',
      'device_agent_remote_api_state{state="online"} 0',
      'device_agent_api_requests_total{side="local",method="POST",route="/tunnels",status="200"} 1',
      'device_agent_api_requests_total{side="remote",method="GET",route="/tunnels/:url_part",status="200"} 1',
      'device_agent_api_requests_total{side="remote",method="GET",route="none",status="401"} 1',
      'device_agent_api_request_duration_seconds_count{side="local",method="POST",route="/tunnels"} 1',
    ]) {
      expect(text).toContain(`${line}\n`);
    }
    for (const name of ['process_resident_memory_bytes', 'process_cpu_seconds_total', 'nodejs_eventloop_utilization']) {
      expect(text).toMatch(new RegExp(`^${name} [\\d.e-]+$`, 'm'));
    }
  });

  it('do not grow with the paths that clients request', async () => {
    const { local } = await setUpApi();
    const linesOf = async () => (await request(local).get('/metrics')).text.match(/device_agent_api/g)?.length;
    await request(local).get('/tunnels/a');
    await request(local).get('/a');
    const before = await linesOf();
    const after = await linesOf();
    for (let n = 0; n < 10; n++) {
      await request(local).get(`/tunnels/b${n}`);
      await request(local).get(`/b${n}`);
    }
    expect(before).toBeLessThan(after ?? 0);
    expect(await linesOf()).toBe(after);
  });
});
