import { expect, it } from 'vitest';
import { loadGatewayServerSettings } from '../../src/settings/gateway-settings.ts';
import { clusterCompose } from '../support/cluster-compose.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

it('the compose file of several gateways has valid settings, the same but for their addresses, which the balancer knows', () => {
  const { settings, balancer } = clusterCompose();
  const loaded = Object.entries(settings).map(([name, environment]) => {
    const { nodeAddress, ...same } = loadGatewayServerSettings(environment, temporaryFolder());
    expect(balancer).toContain(`server ${name} ${nodeAddress}`);
    return same;
  });
  expect(
    new Set(loaded.map((each) => JSON.stringify({ ...each, dataDir: '', texts: {}, settingsFile: '' }))).size,
  ).toBe(1);
  expect(loaded[0]?.databaseUrl).toBe('postgres://gateway:secret@database/gateway');
});
