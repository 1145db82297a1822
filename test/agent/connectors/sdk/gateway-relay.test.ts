import { once } from 'node:events';
import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { parseGatewayAddress } from '../../../../src/agent/connectors/gateway-socket.ts';
import { GatewayRelay } from '../../../../src/agent/connectors/sdk/gateway-relay.ts';
import { directDial } from '../../../../src/lib/network/dial.ts';
import { FlakyProxy } from '../../../support/flaky-proxy.ts';
import { startTestGateway, type TestGateway } from '../../../support/gateway.ts';
import { silentLog } from '../../../support/silent-log.ts';
import { closeOf } from '../../../support/until.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({ domain: 'gw.test' });
});
afterAll(() => gateway.close());

const open = async (to: string) => {
  const address = parseGatewayAddress(to);
  const trust = () => ({ ca: gateway.sessionCa });
  const options = { address, dial: directDial(), trust, log: silentLog, lingerMs: 50 };
  const relay = new GatewayRelay(options);
  onTestFinished(() => relay.close());
  const { address: listening, cert } = await relay.open();
  return { relay, cert, ...parseGatewayAddress(listening) };
};

it('closes when the agent stops', async () => {
  const { relay, host, port } = await open(gateway.sessionAddress);
  const client = connect(port, host);
  await once(client, 'connect');
  relay.close();
  await closeOf(client);
  const [error] = await once(connect(port, host), 'error');
  expect(error.code).toBe('ECONNREFUSED');
});

it('does not wait for a gateway that vanished', async () => {
  const network = await FlakyProxy.start(gateway.sessionAddress);
  onTestFinished(() => network.refuse());
  const { host, port, cert } = await open(network.address);
  const sdk = connectTls({ host, port, ca: cert });
  await once(sdk, 'secureConnect');
  network.silence();
  sdk.end();
  await once(sdk.resume(), 'close');
});
