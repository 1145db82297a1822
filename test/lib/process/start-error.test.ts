import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, it } from 'vitest';
import { startError } from '../../../src/lib/process/start-error.ts';
import { serving } from '../../support/loopback.ts';

const START = {
  what: 'the gateway',
  portSettings: 'GATEWAY_HTTPS_PORT',
  addressAdvice: 'set GATEWAY_HOST and so on',
  folder: '/var/lib/gateway',
};

async function listenError(host: string, port: number): Promise<unknown> {
  const [error] = await once(createServer().listen(port, host), 'error');
  return startError(error, START);
}

it('names the settings to change when a port or an address cannot be used', async () => {
  const port = await serving(createServer());
  expect(await listenError('127.0.0.1', port)).toMatchObject({
    name: 'OperatorError',
    message: expect.stringMatching(/^the gateway cannot start \(.*EADDRINUSE.*\): stop .* set GATEWAY_HTTPS_PORT/),
  });
  expect(await listenError('192.0.2.1', 0)).toMatchObject({
    name: 'OperatorError',
    message: expect.stringMatching(/^the gateway cannot start \(.*EADDRNOTAVAIL.*\): set GATEWAY_HOST and /),
  });
});
