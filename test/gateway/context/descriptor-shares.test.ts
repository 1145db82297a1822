import { expect, it } from 'vitest';
import { descriptorShares } from '../../../src/gateway/context/descriptor-shares.ts';
import { descriptorLimit } from '../../../src/lib/process/process-metrics.ts';

it.each([256, 1_024, 4_096])('all shares together leave some of %i descriptors', (limit) => {
  const { connections, hellos, sessions, unauthenticated, tcpPorts, tcpConnections } = descriptorShares(limit);
  const total = 2 * connections + hellos + sessions + 2 * unauthenticated + tcpPorts + tcpConnections;
  expect(total).toBeLessThanOrEqual(limit - 50);
  expect(Math.min(connections, hellos, sessions, unauthenticated, tcpPorts, tcpConnections)).toBeGreaterThan(1);
});

it('the usual limit is above every limit of the settings, and so is none', () => {
  for (const limit of [524_288, Number.POSITIVE_INFINITY]) {
    const shares = descriptorShares(limit);
    expect(shares.connections).toBeGreaterThanOrEqual(8_192);
    expect(shares.hellos).toBeGreaterThanOrEqual(1_024);
    expect(shares.sessions).toBeGreaterThanOrEqual(1_000);
    expect(shares.tcpConnections).toBeGreaterThanOrEqual(8_192);
  }
  expect(descriptorLimit()).toBeGreaterThan(0);
});
