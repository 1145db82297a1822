import { EventEmitter } from 'node:events';
import { expect, it, onTestFinished } from 'vitest';
import { TcpListeners } from '../../../../src/gateway/edge/streams/tcp-listeners.ts';
import { EdgeCounters } from '../../../../src/gateway/metrics/edge-counters.ts';
import { freePorts } from '../../../support/free-ports.ts';
import { silentLog } from '../../../support/silent-log.ts';

function testListeners(): TcpListeners {
  const listeners = new TcpListeners({
    host: 'localhost',
    endpoints: Object.assign(new EventEmitter(), { onTcpPort: () => undefined }),
    internal: () => () => undefined,
    connections: 10,
    isRefused: () => false,
    relays: null,
    balancers: null,
    counters: new EdgeCounters(),
    log: silentLog,
  });
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
