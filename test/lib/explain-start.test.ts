import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { explainStart } from '../../src/lib/explain-start.ts';

const START = { what: 'the gateway', portSettings: 'GATEWAY_HTTPS_PORT', folder: '/var/lib/gateway' };

async function failureToListen(host: string, port: number): Promise<unknown> {
  const [error] = await once(createServer().listen(port, host), 'error');
  return explainStart(error, START);
}

it('says which settings to change when it cannot listen where it is told to', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void taken.close());
  await once(taken, 'listening');
  const { port } = taken.address() as AddressInfo;
  expect(await failureToListen('127.0.0.1', port)).toMatchObject({
    name: 'OperatorError',
    message: expect.stringMatching(/^the gateway cannot start \(.*EADDRINUSE.*\): stop .* set GATEWAY_HTTPS_PORT/),
  });
  expect(await failureToListen('192.0.2.1', 0)).toMatchObject({
    name: 'OperatorError',
    message: expect.stringMatching(/^the gateway cannot start \(.*EADDRNOTAVAIL.*\): set GATEWAY_HOST and /),
  });
});
