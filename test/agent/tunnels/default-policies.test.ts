import { describe, expect, it } from 'vitest';
import { offline } from '../../../src/agent/connectors/gateway-error.ts';
import { ApiError } from '../../../src/lib/errors.ts';
import { PolicyInput } from '../../../src/traffic-policy/document.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { setUpTunnels, tunnelRequest } from '../../support/tunnel-set-up.ts';
import { gate, until } from '../../support/until.ts';

const inbound = [{ actions: [{ type: 'deny' }] }];
const DENIED = PolicyInput.parse({ inbound });

describe('new default policies', () => {
  it('apply to a tunnel that is being opened with the old ones', async () => {
    const { tunnels, connector } = await setUpTunnels();
    const slow = gate();
    connector.beforeOpen = () => slow.opened;
    const created = tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    const own = tunnels.create(tunnelRequest({ domain: 'own.localhost', policy: { inbound: [], outbound: [] } }));
    await until(() => connector.requests.length === 2, 'both being opened');
    await tunnels.policies.useDefaults(DENIED);
    slow.open();
    const [{ url }] = await Promise.all([created, own]);
    const policy = connector.bound.get(url)?.request.trafficPolicy;
    expect(policy?.on_http_request).toMatchObject(inbound);
    expect(connector.requests).toHaveLength(3);
  });

  it('do not reopen a tunnel that is being removed', async () => {
    const { tunnels, connector } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    const slow = gate();
    connector.beforeClose = () => slow.opened;
    const removed = tunnels.remove(view);
    await tunnels.policies.useDefaults(DENIED);
    slow.open();
    await removed;
    expect(connector.requests).toHaveLength(1);
    expect(connector.bound.size).toBe(0);
  });

  it('leave no endpoint of a tunnel that is deleted while it is reopened', async () => {
    const { tunnels, connector } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    const slow = gate();
    let closing = 0;
    connector.beforeClose = () => {
      closing++;
      return slow.opened;
    };
    const changed = tunnels.policies.useDefaults(DENIED);
    await until(() => closing === 1, 'the endpoint being closed');
    const removed = tunnels.remove(view);
    slow.open();
    await Promise.all([changed, removed]);
    expect(tunnels.list()).toEqual([]);
    expect([...connector.bound.keys()]).toEqual([]);
  });

  it('are kept when the session is lost meanwhile, however soon it is back', async () => {
    const { tunnels, connector } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    connector.beforeOpen = async () => {
      connector.beforeOpen = async () => {};
      connector.goOffline();
      connector.goOnline();
      throw offline('the connection broke');
    };
    await tunnels.policies.useDefaults(DENIED);
    expect(tunnels.policies.on(view.tunnel)).toBe(DENIED);
    await until(() => view.status.state === 'online', 'the tunnel up again');
    expect(connector.bound.get(view.url)?.request.trafficPolicy?.on_http_request).toMatchObject(inbound);
  });

  it('for HTTP are not in force on tcp tunnels', async () => {
    const { tunnels } = await setUpTunnels();
    await tunnels.policies.useDefaults(DENIED);
    const tcp = await tunnels.create(tunnelRequest({ protocol: 'tcp', domain: 'tcp.localhost:20000' }));
    expect(JSON.stringify(tunnels.policies.on(tcp.tunnel))).not.toContain('on_http_request');
    expect(tunnels.policies.on(tcp.tunnel)).not.toHaveProperty('outbound');
  });

  it('are tried at once on tunnels refused with the old ones', async () => {
    const clock = new SteeredClock();
    const { tunnels, connector } = await setUpTunnels({ clock });
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    connector.beforeOpen = async ({ trafficPolicy }) => {
      if (!trafficPolicy?.on_http_request?.length) throw new ApiError(400, 'ERR_NGROK_2201', 'no such action');
    };
    connector.goOffline();
    connector.goOnline();
    await until(() => view.status.state === 'failed', 'refused');
    await tunnels.policies.useDefaults(DENIED);
    // By a clock that stands still.
    await until(() => view.status.state === 'online', 'online');
  });

  it('leave the old ones in force and the tunnel online when the gateway refuses them', async () => {
    const { tunnels, connector } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    const before = tunnels.policies.on(view.tunnel);
    connector.beforeOpen = async ({ trafficPolicy }) => {
      if (trafficPolicy?.on_http_request?.length) throw new ApiError(400, 'ERR_NGROK_2201', 'no such action');
    };
    await expect(tunnels.policies.useDefaults(DENIED)).rejects.toThrow(/refused .* on https:\/\/cam.* no such action/);
    expect(tunnels.policies.on(view.tunnel)).toBe(before);
    expect(view.status.state).toBe('online');
    expect([...connector.bound.keys()]).toEqual([view.url]);
  });
});
