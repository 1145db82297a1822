import { describe, expect, it } from 'vitest';
import { offline } from '../../../src/agent/connectors/gateway-error.ts';
import { tunnelsCodec } from '../../../src/agent/tunnels/tunnels-file.ts';
import { ApiError } from '../../../src/lib/errors.ts';
import { DurableFile } from '../../../src/lib/files/durable-file.ts';
import { DeadlineExceeded } from '../../../src/lib/time/deadline.ts';
import { PowerCutFiles } from '../../support/power-cut-files.ts';
import { recordingLog, silentLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { setUpTunnels, tunnelRequest } from '../../support/tunnel-set-up.ts';
import { gate, until } from '../../support/until.ts';

/** A clock on which every random delay is the longest possible. */
function latestClock(): SteeredClock {
  const clock = new SteeredClock();
  clock.chance = () => 0.999999;
  return clock;
}

const failingDisk = async () => {
  const files = new PowerCutFiles();
  const adapter = new DurableFile({ path: '/data/tunnels.json', codec: tunnelsCodec, log: silentLog, files });
  const breakDisk = () => {
    files.failure = { operation: 'write', code: 'ENOSPC' };
  };
  const mendDisk = () => {
    files.failure = null;
  };
  return { ...(await setUpTunnels({ adapter })), breakDisk, mendDisk };
};

describe('creating a tunnel', () => {
  it('binds the endpoint, saves the tunnel and returns it', async () => {
    const { tunnels, connector, store } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    expect(view.url).toBe('https://cam.localhost:8443');
    expect(view.status).toMatchObject({ state: 'online', lastError: null });
    expect(store.list()).toEqual([view.tunnel]);
    expect(connector.requests).toEqual([
      {
        protocol: 'http',
        domain: 'cam.localhost',
        upstream: expect.anything(),
        forwardsTo: 'localhost:8001',
        trafficPolicy: { on_http_request: [], on_http_response: [] },
        options: {},
      },
    ]);
    expect(await connector.requests[0]?.upstream.address()).toBe('http://localhost:8001');
  });

  it('keeps the domain that the gateway chose', async () => {
    const { tunnels } = await setUpTunnels();
    const http = await tunnels.create(tunnelRequest());
    expect(http.tunnel.domain).toBe('chosen-1.localhost');
    const tcp = await tunnels.create(tunnelRequest({ protocol: 'tcp' }));
    expect(tcp.tunnel).toMatchObject({ url: 'tcp://chosen-2.localhost:20002', domain: 'chosen-2.localhost:20002' });
  });

  it('is refused for an upstream that is not allowed, without a request to the gateway', async () => {
    const { tunnels, connector } = await setUpTunnels();
    for (const forwards_to of ['169.254.169.254:80', '8.8.8.8:53', 'unix:/run/docker.sock', '[fe80::1]:80']) {
      await expect(tunnels.create(tunnelRequest({ forwards_to }))).rejects.toMatchObject({
        status: 400,
        code: 'ERR_AGENT_UPSTREAM_NOT_ALLOWED',
      });
    }
    expect(connector.requests).toEqual([]);
  });

  it('fails without a session and leaves the domain free', async () => {
    const { tunnels, connector, store } = await setUpTunnels();
    connector.goOffline();
    const request = tunnelRequest({ domain: 'cam.localhost' });
    await expect(tunnels.create(request)).rejects.toMatchObject({ status: 503, retryAfter: 5 });
    expect(store.list()).toEqual([]);
    connector.goOnline();
    await tunnels.create(request);
  });

  it("passes on the gateway's refusal and leaves nothing behind", async () => {
    const { tunnels, connector, store } = await setUpTunnels();
    connector.beforeOpen = async () => {
      throw new ApiError(403, 'ERR_NGROK_316', 'not allowed by the ACL');
    };
    const request = tunnelRequest({ domain: 'cam.localhost' });
    await expect(tunnels.create(request)).rejects.toMatchObject({ status: 403, code: 'ERR_NGROK_316' });
    expect([store.list(), tunnels.list()]).toEqual([[], []]);
    connector.beforeOpen = async () => {};
    await tunnels.create(request);
  });

  it('fails when the endpoint URL of the gateway is not valid, and leaves nothing behind', async () => {
    const { tunnels, connector, store } = await setUpTunnels();
    connector.httpsPort = 70_000;
    await expect(tunnels.create(tunnelRequest({ domain: 'cam.localhost' }))).rejects.toMatchObject({
      status: 502,
      code: 'ERR_AGENT_GATEWAY_REFUSED',
    });
    expect([store.list(), [...connector.bound.keys()]]).toEqual([[], []]);
    connector.httpsPort = 8443;
    await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
  });

  it('does not wait for another, slow one', async () => {
    const { tunnels, connector } = await setUpTunnels();
    const slow = gate();
    connector.beforeOpen = ({ domain }) => (domain === 'slow.localhost' ? slow.opened : Promise.resolve());
    const first = tunnels.create(tunnelRequest({ domain: 'slow.localhost' }));
    await tunnels.create(tunnelRequest({ domain: 'quick.localhost' }));
    slow.open();
    await first;
  });
});

describe('removing a tunnel', () => {
  it('closes the endpoint, deletes the tunnel and frees the domain', async () => {
    const { tunnels, connector, store } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    const order: string[] = [];
    connector.beforeClose = async () => void order.push(`closing with ${store.list().length} saved`);
    await Promise.all([tunnels.remove(view), tunnels.remove(view)]);
    expect(order).toEqual(['closing with 1 saved']);
    expect([connector.bound.size, store.list().length, tunnels.list().length]).toEqual([0, 0, 0]);
    expect(tunnels.counts()).toEqual({ online: 0, connecting: 0, offline: 0, failed: 0 });
    await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
  });

  it('brings the tunnel back when the removal cannot be saved', async () => {
    const { tunnels, connector, breakDisk } = await failingDisk();
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    breakDisk();
    await expect(tunnels.remove(view)).rejects.toMatchObject({ status: 500 });
    await until(() => connector.bound.size === 1, 'bound again');
    expect(tunnels.find('cam')).toBe(view);
  });

  it('leaves no endpoint behind while the tunnel is being bound', async () => {
    const { tunnels, connector, store } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    connector.goOffline();
    const slow = gate();
    connector.beforeOpen = () => slow.opened;
    connector.goOnline();
    await until(() => connector.requests.length === 2, 'being bound');
    const removal = tunnels.remove(view);
    slow.open();
    await removal;
    expect([connector.bound.size, store.list().length]).toEqual([0, 0]);
    connector.goOffline();
    connector.goOnline();
    await new Promise(setImmediate);
    expect(connector.bound.size).toBe(0);
  });

  it('works without a session', async () => {
    const { tunnels, connector, store } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest());
    connector.goOffline();
    await tunnels.remove(view);
    connector.goOnline();
    await new Promise(setImmediate);
    expect([connector.bound.size, store.list().length]).toEqual([0, 0]);
  });
});

describe('supervised tunnels', () => {
  it('come back after a restart in order, at the same URLs', async () => {
    const before = await setUpTunnels();
    for (const domain of ['c.localhost', undefined, 'a.localhost'])
      await before.tunnels.create(tunnelRequest({ domain }));
    const urls = before.tunnels.list().map(({ url }) => url);
    await before.tunnels.stop();
    const after = await setUpTunnels({ folder: before.folder });
    await until(() => after.tunnels.counts().online === 3, 'all online');
    expect(after.tunnels.list().map(({ url }) => url)).toEqual(urls);
    expect([...after.connector.bound.keys()]).toEqual(urls);
  });

  it('are bound 16 at a time, and one that hangs or fails delays no other', async () => {
    const before = await setUpTunnels();
    for (let n = 0; n < 50; n++) await before.tunnels.create(tunnelRequest({ domain: `t${n}.localhost` }));
    await before.tunnels.stop();
    const { tunnels, connector } = await setUpTunnels({ folder: before.folder });
    connector.goOffline();
    const slow = gate();
    let [now, most] = [0, 0];
    connector.beforeOpen = async ({ domain }) => {
      most = Math.max(most, ++now);
      await (domain === 't0.localhost' ? slow.opened : new Promise(setImmediate));
      now--;
      if (domain === 't1.localhost') throw new ApiError(403, 'ERR_NGROK_316', 'no');
    };
    connector.goOnline();
    await until(() => tunnels.counts().online === 48, 'the others online');
    expect(most).toBe(16);
    expect(tunnels.find('t1').status).toMatchObject({ state: 'failed', lastError: { code: 'ERR_NGROK_316' } });
    expect(tunnels.find('t0').status.state).toBe('connecting');
    slow.open();
    await until(() => tunnels.counts().online === 49, 'the slow one, too');
  });

  it.each([
    [
      { policy: { on_http_request: [{ actions: [{ type: 'teleport', config: {} }] }] } },
      'ERR_AGENT_POLICY_NOT_APPLICABLE',
      /^policy\.on_http_request\[0\]\.actions\[0\]\.?.*unknown action "teleport".*delete the tunnel and create it/,
    ],
    [{ policy: { on_quic: [] } }, 'ERR_AGENT_POLICY_NOT_APPLICABLE', /^policy\.on_quic: unknown member "on_quic"/],
    [{ protocol: 'udp', url: 'udp://cam.localhost:9' }, 'ERR_AGENT_INVALID_REQUEST', /not support the protocol "udp"/],
    [{ forwards_to: 'quic://camera:9' }, 'ERR_AGENT_INVALID_REQUEST', /^forwards_to: the scheme quic/],
  ])('one stored tunnel with %j fails alone, and is kept', async (members, code, message) => {
    const before = await setUpTunnels();
    const { tunnel } = await before.tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    await before.tunnels.create(tunnelRequest({ domain: 'door.localhost' }));
    await before.store.save({ ...tunnel, ...members });
    await before.tunnels.stop();
    const { tunnels, store, connector } = await setUpTunnels({ folder: before.folder });
    await until(() => tunnels.counts().failed === 1 && tunnels.counts().online === 1, 'one failed, one online');
    expect(tunnels.find('cam').status.lastError).toMatchObject({ code, message: expect.stringMatching(message) });
    expect(store.list()[0]).toEqual({ ...tunnel, ...members });
    expect([...connector.bound.keys()]).toEqual(['https://door.localhost:8443']);
    await tunnels.remove(tunnels.find('cam'));
    expect(store.list()).toHaveLength(1);
  });

  it('are offline during an outage, not failed, and all come back', async () => {
    const { tunnels, connector } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest());
    connector.goOffline();
    expect(view.status).toMatchObject({ state: 'offline', lastError: { message: 'connection lost' } });
    connector.goOnline();
    await until(() => view.status.state === 'online', 'online again');
    expect(view.status.lastError).toBeNull();
  });

  it('keep their domains while offline when the gateway chooses one for a new tunnel', async () => {
    const { tunnels, connector } = await setUpTunnels();
    const down = await tunnels.create(tunnelRequest({ domain: 'chosen-1.localhost' }));
    connector.beforeOpen = async ({ domain }) => {
      if (domain === 'chosen-1.localhost') throw new ApiError(502, 'ERR_NGROK_316', 'not now');
    };
    connector.bound.get(down.url)?.end({ code: 'ERR_NGROK_316', message: 'not now' });
    connector.bound.delete(down.url);
    await until(() => down.status.state === 'failed', 'down');
    const chosen = await tunnels.create(tunnelRequest());
    expect(chosen.tunnel.domain).toBe('chosen-2.localhost');
    expect([...connector.bound.keys()]).toEqual([chosen.url]);
    expect(tunnels.find('chosen-1')).toBe(down);
    // Its name is free again once it is gone.
    await tunnels.remove(chosen);
    await tunnels.create(tunnelRequest({ domain: 'chosen-2.localhost' }));
  });

  it('fail when their domain has become the agent’s own', async () => {
    const { tunnels, folder } = await setUpTunnels({ reservedDomains: [] });
    await tunnels.create(tunnelRequest({ domain: 'agent.localhost' }));
    await tunnels.stop();
    const restarted = await setUpTunnels({ folder, reservedDomains: ['agent.localhost'] });
    const view = restarted.tunnels.find('agent');
    await until(() => view.status.state === 'failed', 'refused');
    expect(view.status.lastError).toMatchObject({
      code: 'ERR_AGENT_DOMAIN_IN_USE',
      message: expect.stringContaining("agent.localhost is the agent's own domain"),
    });
    expect(restarted.connector.requests).toEqual([]);
    await restarted.tunnels.remove(view);
    expect(restarted.tunnels.list()).toEqual([]);
  });

  it('show why the session is down now, not why it was lost', async () => {
    const { tunnels, connector } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest());
    connector.goOffline();
    const refusal = { code: 'ERR_NGROK_300', message: 'the owner of the authtoken is not active' };
    connector.status = { ...connector.status, lastError: refusal };
    expect(view.status).toMatchObject({ state: 'offline', lastError: refusal });
    // At the start there is nothing that was lost.
    connector.status = { ...connector.status, state: 'connecting' };
    expect(view.status.lastError).toEqual(refusal);
    connector.goOnline();
    await until(() => view.status.state === 'online', 'online again');
    expect(view.status.lastError).toBeNull();
  });

  it('log that they are online once per session, but not for a tunnel created later', async () => {
    const { log, lines } = recordingLog();
    const { tunnels, connector } = await setUpTunnels({ log });
    const said = () => lines.filter(({ msg }) => msg === 'tunnels online').map(({ online }) => online);
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    expect(said()).toEqual([]);
    connector.goOffline();
    connector.goOnline();
    await until(() => view.status.state === 'online', 'online again');
    expect(said()).toEqual([1]);
  });

  it('log each change with the URL, and failures of some after a reconnect', async () => {
    const { log, lines } = recordingLog();
    const { tunnels, connector } = await setUpTunnels({ log });
    const a = await tunnels.create(tunnelRequest({ domain: 'a.localhost' }));
    const b = await tunnels.create(tunnelRequest({ domain: 'b.localhost' }));
    connector.beforeOpen = async ({ domain }) => {
      if (domain === 'b.localhost') throw new ApiError(409, 'ERR_NGROK_334', 'already online');
    };
    connector.goOffline();
    connector.goOnline();
    await until(() => b.status.state === 'failed' && a.status.state === 'online', 'settled');
    connector.beforeOpen = async () => {};
    connector.goOffline();
    connector.goOnline();
    await until(() => b.status.state === 'online' && a.status.state === 'online', 'online again');
    await tunnels.remove(a);
    expect(lines.map(({ msg, url, online, failed }) => [msg, url ?? [online, failed]])).toEqual([
      ['tunnel created', a.url],
      ['tunnel created', b.url],
      ['tunnel failed; retrying', b.url],
      ['some tunnels are not online', [1, 1]],
      ['tunnels online', [2, 0]],
      ['tunnel deleted', a.url],
    ]);
  });

  it('that are refused are retried at most 30 s apart, with one log line per error code', async () => {
    const clock = latestClock();
    const { log, lines } = recordingLog();
    const { tunnels, connector } = await setUpTunnels({ clock, log });
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    let refusals = 0;
    connector.beforeOpen = async () => {
      if (++refusals < 12) throw new ApiError(409, 'ERR_NGROK_334', 'already online');
    };
    connector.bound.get(view.url)?.end({ code: 'ERR_NGROK_741', message: 'taken away' });
    connector.bound.clear();
    for (let n = 1; n <= 12; n++) {
      await until(() => clock.delays.length === n, `wait ${n}`);
      expect(view.status.state).toBe('failed');
      await clock.advance(clock.delays.at(-1) ?? 0);
    }
    await until(() => view.status.state === 'online', 'online at last');
    expect(clock.delays).toEqual([499, 999, 1999, 3999, 7999, 15999, ...new Array<number>(6).fill(29999)]);
    const said = lines.filter(({ msg }) => msg === 'tunnel failed; retrying');
    expect(said.map(({ code }) => code)).toEqual(['ERR_NGROK_741', 'ERR_NGROK_334']);
    const changes = lines.flatMap(({ msg, url }) =>
      msg === 'tunnel offline' || msg === 'tunnel online' ? [[msg, url]] : [],
    );
    expect(changes).toEqual([
      ['tunnel offline', view.url],
      ['tunnel online', view.url],
    ]);
  });

  it.each([null, 'ERR_NGROK_741'])('back off from a gateway that ends every endpoint with %s', async (code) => {
    const clock = latestClock();
    const { log, lines } = recordingLog();
    const { tunnels, connector } = await setUpTunnels({ clock, log });
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    const end = () => {
      const endpoint = connector.bound.get(view.url);
      connector.bound.clear();
      endpoint?.end({ code, message: 'taken away' });
    };
    for (let n = 1; n <= 8; n++) {
      end();
      await until(() => clock.delays.length === n, `wait ${n}`);
      expect(connector.requests).toHaveLength(n);
      await clock.advance(clock.delays.at(-1) ?? 0);
      await until(() => view.status.state === 'online', 'online for a moment');
    }
    expect(clock.delays).toEqual([499, 999, 1999, 3999, 7999, 15999, 29999, 29999]);
    expect(lines.some(({ msg }) => msg === 'tunnel failed; retrying')).toBe(true);
    clock.skip(30_000);
    end();
    await until(() => clock.delays.length === 9, 'the wait after a while of peace');
    expect(clock.delays.at(-1)).toBe(499);
  });

  it('that are refused are retried at once on a new session', async () => {
    const { tunnels, connector } = await setUpTunnels({ clock: latestClock() });
    const view = await tunnels.create(tunnelRequest());
    connector.goOffline();
    connector.beforeOpen = async () => {
      throw new ApiError(403, 'ERR_NGROK_316', 'no');
    };
    connector.goOnline();
    await until(() => view.status.state === 'failed', 'failed');
    connector.beforeOpen = async () => {};
    connector.goOffline();
    connector.goOnline();
    await until(() => view.status.state === 'online', 'online');
  });

  it('go before a tunnel that the gateway never answers, which would take down every session', async () => {
    const clock = latestClock();
    const { tunnels, connector } = await setUpTunnels({ clock });
    const silent = await tunnels.create(tunnelRequest({ domain: 'silent.localhost' }));
    const other = await tunnels.create(tunnelRequest({ domain: 'other.localhost' }));
    const hung = gate();
    connector.beforeOpen = async ({ domain }) => {
      if (domain === 'other.localhost') return hung.opened;
      connector.goOffline();
      throw offline('no answer', new DeadlineExceeded('binding silent.localhost', 15_000));
    };
    connector.goOffline();
    connector.goOnline();
    await until(() => connector.status.state === 'offline', 'the session being given up');
    hung.open();
    connector.goOnline();
    await until(() => other.status.state === 'online', 'the other one online');
    expect([silent.status.state, clock.delays]).toEqual(['connecting', [1000]]);
    connector.beforeOpen = async () => {};
    await clock.advance(clock.delays.at(-1) ?? 0);
    await until(() => silent.status.state === 'online', 'online once it is answered');
  });

  it('follow the gateway to another URL, and save it', async () => {
    const { tunnels, connector, store } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    connector.goOffline();
    connector.httpsPort = 9443;
    connector.goOnline();
    await until(() => view.status.state === 'online', 'online');
    expect(tunnels.find('cam.localhost:9443')).toBe(view);
    expect(store.list()).toEqual([expect.objectContaining({ url: 'https://cam.localhost:9443' })]);
  });

  it('do not take an invalid URL from the gateway, which would damage the file', async () => {
    const { tunnels, connector, store } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    connector.goOffline();
    connector.httpsPort = 70_000;
    connector.goOnline();
    await until(() => view.status.state === 'failed', 'failed');
    expect(view.status.lastError?.code).toBe('ERR_AGENT_GATEWAY_REFUSED');
    expect([connector.bound.size, tunnels.find('cam')]).toEqual([0, view]);
    expect(store.list()).toEqual([view.tunnel]);
    expect(view.url).toBe('https://cam.localhost:8443');
  });

  it('come online 1,000 at once with the session, without delays', async () => {
    const { tunnels, connector } = await setUpTunnels({ clock: latestClock() });
    await Promise.all(
      Array.from({ length: 1_000 }, (_, n) => tunnels.create(tunnelRequest({ domain: `t${n}.localhost` }))),
    );
    connector.goOffline();
    connector.goOnline();
    await until(() => tunnels.counts().online === 1_000, 'all online');
  });
});
