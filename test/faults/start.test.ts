import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import { agentSession } from '../support/gateway.ts';
import { measured } from '../support/measured.ts';
import { expectRecovery } from './recovery.ts';
import { rounds } from './rounds.ts';
import { Scene } from './scene.ts';

const TUNNELS = rounds({ short: 10, full: 50 });
/** A policy with an action that the gateway does not have: it refuses this tunnel, now and for ever. */
const UNSUPPORTED = {
  on_http_request: [{ actions: [{ type: 'oauth' as const, config: { provider: 'google' } }] }],
};

const post = (api: string, body: object) =>
  fetch(`${api}/tunnels`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
const state = async (api: string, tunnel: string) =>
  (await (await fetch(`${api}/tunnels/${tunnel}`)).json()) as {
    status: string;
    last_error: { code: string | null; message: string } | null;
  };

/** `expect.poll` does not know its test when several run side by side. */
const soon = (check: () => Promise<void>) => vi.waitFor(check, { timeout: 30_000 });

describe.concurrent('an agent that starts', () => {
  it('without a network has its API online, and its tunnels within 5 s of the network', { timeout: 180_000 }, () =>
    Scene.play({ tunnels: TUNNELS }, async (scene) => {
      await scene.rehearse();
      await scene.proxy.refuse();
      const agent = scene.startAgent();
      const api = await agent.api();
      await agent.logged('session attempt failed; retrying');
      expect((await fetch(`${api}/healthz`)).status).toBe(200);
      expect((await fetch(`${api}/readyz`)).status).toBe(503);
      expect(await (await fetch(`${api}/tunnels`)).json()).toHaveLength(TUNNELS);
      expect(await state(api, 'tunnel-7')).toMatchObject({ status: 'connecting' });
      const before = readFileSync(join(scene.folder, 'data', 'tunnels.json'), 'utf8');
      const refused = await post(api, { protocol: 'http', forwards_to: 8001, domain: 'new.localhost' });
      expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '5']);
      expect(readFileSync(join(scene.folder, 'data', 'tunnels.json'), 'utf8')).toBe(before);
      await delay(rounds({ short: 3_000, full: 30_000 }));
      await scene.proxy.listen();
      expectRecovery('boot before the network, from when it is there', await scene.recovered(), 5_000);
      expect((await fetch(`${api}/readyz`)).status).toBe(200);
    }),
  );

  it('uses a new authtoken from its file after the old one was revoked', { timeout: 180_000 }, () =>
    Scene.play({ tunnels: TUNNELS }, async (scene) => {
      const agent = await scene.startServing();
      const api = await agent.api();
      const revoked = scene.gateway.authtoken;
      await scene.stopGateway();
      await scene.restartGateway();
      scene.writeAuthtoken(revoked);
      await soon(async () => expect(await (await fetch(`${api}/status`)).text()).toContain('ERR_NGROK_107'));
      await soon(async () => expect((await state(api, 'tunnel-0')).status).toBe('offline'));
      expect(JSON.stringify(agent.lines)).not.toContain(revoked);
      scene.writeAuthtoken();
      // After a refusal, the agent retries with backoff, at most 30 s apart.
      expectRecovery('authtoken replaced', await scene.recovered(), 35_000);
    }),
  );

  it('serves all other tunnels while one is always refused', { timeout: 180_000 }, () =>
    Scene.play({ tunnels: TUNNELS, others: [{ domain: 'refused.localhost', policy: UNSUPPORTED }] }, async (scene) => {
      await scene.rehearse();
      const agent = scene.startAgent();
      const api = await agent.api();
      expectRecovery('all but the refused one, from when the API is up', await scene.recovered(), 5_000);
      const { status, last_error } = await state(api, 'refused');
      expect([status, last_error?.code]).toEqual(['failed', 'ERR_NGROK_9026']);
      expect((await fetch(`${api}/readyz`)).status).toBe(503);
      expect(await (await fetch(`${api}/tunnels`)).json()).toHaveLength(TUNNELS + 1);
      scene.proxy.cut();
      await agent.logged('session lost');
      expectRecovery('the same after a reconnect', await scene.recovered(), 5_000);
      expect((await fetch(`${api}/tunnels/refused`, { method: 'DELETE' })).status).toBe(204);
      expect((await fetch(`${api}/readyz`)).status).toBe(200);
    }),
  );

  it('binds a domain of another agent once that one releases it', { timeout: 180_000 }, () =>
    Scene.play({ tunnels: 3 }, async (scene) => {
      const holder = await agentSession(scene.gateway).connect();
      const held = await holder.httpEndpoint().domain('tunnel-1.localhost').listen(false);
      const agent = scene.startAgent();
      const api = await agent.api();
      const refused = { status: 'failed', last_error: { code: 'ERR_NGROK_334' } };
      await soon(async () => expect(await state(api, 'tunnel-1')).toMatchObject(refused));
      await soon(async () => expect(await scene.serves('tunnel-2.localhost')).toBe(true));
      await held.close();
      expectRecovery('a name that another agent has let go', await scene.recovered(), 30_000);
      expect((await state(api, 'tunnel-1')).status).toBe('online');
      await holder.close();
    }),
  );

  it('replaces the endpoints of a dead session immediately', { timeout: 180_000 }, () =>
    Scene.play({ tunnels: 3 }, async (scene) => {
      await scene.rehearse();
      const dying = await FlakyProxy.start(() => scene.gateway.sessionAddress);
      const holder = await agentSession(scene.gateway, dying.address).connect();
      for (const host of scene.hosts) await holder.httpEndpoint().domain(host).listen(false);
      dying.silence();
      const from = performance.now();
      const agent = scene.startAgent();
      const times = await scene.recovered(from);
      expectRecovery('names held by a dead session, from the start of the process', times, 10_000);
      expect(agent.lines.filter(({ code }) => code === 'ERR_NGROK_334')).toEqual([]);
      await dying.close();
    }),
  );

  it('binds its domains again at once after kill -9', { timeout: 180_000 }, () =>
    Scene.play({ tunnels: TUNNELS }, async (scene) => {
      await scene.rehearse();
      const from = performance.now();
      const agent = scene.startAgent();
      const times = await scene.recovered(from);
      const fault = 'kill -9, from the start of the next process';
      const note = `${(await agent.logged('tunnels online')).after_ms} ms from the session to the last tunnel`;
      measured({ fault, tried: 0, note });
      expectRecovery(fault, times, 10_000);
      expect(agent.lines.filter(({ code }) => code === 'ERR_NGROK_334')).toEqual([]);
    }),
  );
});
