import { expect, it } from 'vitest';
import { descriptorShares } from '../../../src/gateway/context/descriptor-shares.ts';
import { descriptorLimit } from '../../../src/lib/process/process-metrics.ts';

const WANTED = { connections: 8_192, hellos: 1_024, unauthenticated: 256 };

it('the descriptors of the units suffice for 20,000 sessions, those that clients cannot use included', () => {
  expect(descriptorShares(65_536, WANTED).sessions).toBeGreaterThan(20_000);
  expect(descriptorShares(65_536, { ...WANTED, connections: 1_000_000 }).sessions).toBeLessThan(20_000);
});

it.each([256, 1_024, 4_096, 65_536])('all shares together leave some of %i descriptors', (limit) => {
  const { connections, hellos, sessions, unauthenticated, tcpPorts, tcpConnections } = descriptorShares(limit, WANTED);
  const ofClients =
    2 * Math.min(WANTED.connections, connections) +
    Math.min(WANTED.hellos, hellos) +
    2 * Math.min(WANTED.unauthenticated, unauthenticated);
  // Sessions have second links.
  const total = ofClients + Math.ceil(sessions * 1.25) + tcpPorts + tcpConnections;
  expect(total).toBeLessThanOrEqual(limit - 50);
  expect(Math.min(connections, hellos, sessions, unauthenticated, tcpPorts, tcpConnections)).toBeGreaterThan(1);
});

it('the usual limit is above every limit of the settings, and so is none', () => {
  for (const limit of [524_288, Number.POSITIVE_INFINITY]) {
    const shares = descriptorShares(limit, WANTED);
    expect(shares.connections).toBeGreaterThanOrEqual(8_192);
    expect(shares.hellos).toBeGreaterThanOrEqual(1_024);
    expect(shares.sessions).toBeGreaterThanOrEqual(1_000);
    expect(shares.tcpConnections).toBeGreaterThanOrEqual(8_192);
  }
  expect(descriptorLimit()).toBeGreaterThan(0);
});
