import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { parse } from 'yaml';
import { loadGatewayServerSettings } from '../../src/settings/gateway-settings.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

interface Compose {
  services: Record<string, { environment?: Record<string, string>; networks?: unknown }>;
}

it('the compose file of several gateways has valid settings, the same but for their addresses, which the balancer knows', () => {
  const text = readFileSync('examples/cluster/compose.yaml', 'utf8')
    .replaceAll(/\$\{GATEWAY_DOMAIN[^}]*\}/g, 'gateway.example.com')
    .replaceAll(/\$\{GATEWAY_ENCRYPTION_KEY[^}]*\}/g, Buffer.alloc(32).toString('base64'))
    .replaceAll(/\$\{POSTGRES_PASSWORD[^}]*\}/g, 'secret');
  const { services } = parse(text, { merge: true }) as Compose;
  const balancer = readFileSync('examples/cluster/haproxy.cfg', 'utf8');
  const settings = ['one', 'two', 'three'].map((name) => {
    const { environment = {} } = services[name] ?? {};
    const { nodeAddress, ...same } = loadGatewayServerSettings(environment, temporaryFolder());
    expect(balancer).toContain(`server ${name} ${nodeAddress}`);
    return same;
  });
  expect(new Set(settings.map((each) => JSON.stringify({ ...each, dataDir: '' }))).size).toBe(1);
  expect(settings[0]?.databaseUrl).toBe('postgres://gateway:secret@database/gateway');
});
