import { expect, it, onTestFinished } from 'vitest';
import { TcpListeners } from '../../../../src/gateway/edge/streams/tcp-listeners.ts';
import { edgeContext } from '../../../support/edge-context.ts';
import { freePorts } from '../../../support/free-ports.ts';

function testListeners(): TcpListeners {
  const context = edgeContext({ options: { host: 'localhost', httpPort: 0, httpsPort: 0 } });
  const endpoints = Object.assign(context.endpoints, { onTcpPort: () => undefined });
  const listeners = new TcpListeners(
    { ...context, endpoints, shares: { tcpConnections: 10 } },
    { internal: () => () => undefined, isRefused: () => false, relays: null },
  );
  onTestFinished(() => listeners.stop());
  return listeners;
}

it('settles when the port is closed before it is open', async () => {
  const { first: port } = await freePorts(1);
  const listeners = testListeners();
  const opened = listeners.open(port);
  listeners.close(port);
  await expect(opened).rejects.toThrow('closed');
  await expect(listeners.open(port)).resolves.toBeUndefined();
});

it('opens nothing once it has stopped', async () => {
  const { first: port } = await freePorts(1);
  const listeners = testListeners();
  listeners.stop();
  await expect(listeners.open(port)).rejects.toThrow('stops');
});
