import { describe, expect, it } from 'vitest';
import { ApiError } from '../../../src/lib/errors.ts';
import { PolicyInput } from '../../../src/traffic-policy/document.ts';
import { gate, setUpTunnels, tunnelRequest, until } from '../../support/tunnel-set-up.ts';

const inbound = [{ actions: [{ type: 'deny' }] }];
const DENIED = PolicyInput.parse({ inbound });

describe('new default policies', () => {
  it('are in force on a tunnel, too, that is being opened with the old ones when they come', async () => {
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

  it('open no tunnel anew that is being removed', async () => {
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

  it('that the gateway refuses leave the old ones in force, and the tunnel up', async () => {
    const { tunnels, connector } = await setUpTunnels();
    const view = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
    const before = tunnels.policies.defaults;
    connector.beforeOpen = async ({ trafficPolicy }) => {
      if (trafficPolicy?.on_http_request?.length) throw new ApiError(400, 'ERR_NGROK_2201', 'no such action');
    };
    await expect(tunnels.policies.useDefaults(DENIED)).rejects.toThrow(/refuses .* on https:\/\/cam.* no such action/);
    expect(tunnels.policies.on(view.tunnel)).toBe(before);
    expect(view.status.state).toBe('online');
    expect([...connector.bound.keys()]).toEqual([view.url]);
  });
});
