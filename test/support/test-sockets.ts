import { subscribe } from 'node:diagnostics_channel';
import { syncBuiltinESMExports } from 'node:module';
import { Server, type Socket } from 'node:net';
import { join } from 'node:path';
import tls from 'node:tls';
import { fileURLToPath } from 'node:url';

// A peer may reset a connection that a test is done with, or never looked at. That is no failure, but would end the whole run
// where the test listens for no error. So the sockets that tests make themselves, unlike those of the product, may fail unseen;
// whoever waits for a socket still gets its error.

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const COMPILED = join(ROOT, 'build/modules/');
const TEST = join(ROOT, 'test/');
const SRC = join(ROOT, 'src/');
const OWN_FILE = fileURLToPath(import.meta.url);
const isPatched = Symbol.for('device-agent.test-sockets');

/** Whether a test made this, and not the product. */
function isOfTest(stack = new Error().stack ?? ''): boolean {
  const frame = stack
    .split('\n')
    .map((line) => line.replace(COMPILED, ROOT))
    .find((line) => !line.includes(OWN_FILE) && (line.includes(TEST) || line.includes(SRC)));
  return frame?.includes(TEST) ?? false;
}

const tolerate = (socket: Socket) => void socket.on('error', () => {});
const serversOfTests = new WeakSet<object>();

function patch(): void {
  subscribe('net.client.socket', (message) => {
    if (isOfTest()) tolerate((message as { socket: Socket }).socket);
  });
  subscribe('net.server.socket', (message) => {
    const { socket } = message as { socket: Socket & { server: Server } };
    if (serversOfTests.has(socket.server)) tolerate(socket);
  });
  const { listen } = Server.prototype;
  Server.prototype.listen = function (this: Server, ...options: unknown[]) {
    if (isOfTest()) {
      serversOfTests.add(this);
      this.prependListener('secureConnection', tolerate);
    }
    return Reflect.apply(listen, this, options);
  } as typeof listen;
  const { connect } = tls;
  tls.connect = ((...options: Parameters<typeof connect>) => {
    const socket = connect(...options);
    if (isOfTest()) tolerate(socket);
    return socket;
  }) as typeof connect;
  syncBuiltinESMExports();
}

// Files that share a process load this more than once.
const marked = globalThis as { [isPatched]?: true };
if (!marked[isPatched]) patch();
marked[isPatched] = true;
