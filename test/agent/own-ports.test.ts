import { expect, it, onTestFinished } from 'vitest';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { Device } from './device.ts';

it('no tunnel can forward to a port of the embedded gateway', async () => {
  const folder = temporaryFolder();
  const device = await Device.start(folder);
  onTestFinished(async () => {
    await device.agent.end();
  });
  const { addresses, session } = (await (await fetch(`${device.api}/status`)).json()) as {
    addresses: Record<string, string>;
    session: { gateway: string };
  };
  const ports = {
    https: addresses.gateway_https,
    http: addresses.gateway_http,
    session: session.gateway,
  };
  for (const [name, address] of Object.entries(ports)) {
    const refused = await device.post({ forwards_to: String(address) });
    expect([refused.status, await refused.json()]).toEqual([
      400,
      expect.objectContaining({ msg: expect.stringContaining(`the embedded gateway's ${name} port`) }),
    ]);
  }
});
