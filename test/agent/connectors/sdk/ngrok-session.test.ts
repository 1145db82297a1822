import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { setNoDelay } from '../../../../src/agent/connectors/sdk/ngrok-session.ts';
import { openSdkLink } from '../../../../src/agent/connectors/sdk/sdk-link.ts';
import { NO_PROXIES } from '../../../../src/lib/network/proxy-rules.ts';
import { ownConnections } from '../../../../src/lib/process/own-connections.ts';
import { systemClock } from '../../../../src/lib/time/clock.ts';
import { startTestGateway } from '../../../support/gateway.ts';
import { listening } from '../../../support/loopback.ts';
import { firstOf, NO_LINUX, programMissing, unless } from '../../../support/requirements.ts';
import { silentLog } from '../../../support/silent-log.ts';

const NO_PYTHON = programMissing('python3', '--version');
const READ_NO_DELAY =
  'import socket; print(socket.socket(fileno=3).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))';

/** Whether a connection of this process has TCP_NODELAY: Node cannot tell. */
function hasNoDelay(descriptor: number): boolean {
  const output = execFileSync('python3', ['-c', READ_NO_DELAY], { stdio: ['ignore', 'pipe', 'inherit', descriptor] });
  return output.toString().trim() !== '0';
}

/** Descriptors of this process's connections to a port of loopback. */
function connectionsTo(port: number): number[] {
  const remote = `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const lines = readFileSync('/proc/self/net/tcp', 'utf8').split('\n').slice(1, -1);
  const rows = lines.map((line) => line.trim().split(/\s+/)).filter((fields) => fields[2] === remote);
  const sockets = new Set(rows.map((fields) => `socket:[${fields[9]}]`));
  const isOurs = (name: string) => {
    try {
      return sockets.has(readlinkSync(`/proc/self/fd/${name}`));
    } catch {
      return false;
    }
  };
  return readdirSync('/proc/self/fd').filter(isOurs).map(Number);
}

it(
  'a session of the SDK sends small packets without waiting for acknowledgements',
  unless(firstOf(NO_LINUX, NO_PYTHON)),
  async () => {
    const gateway = await startTestGateway();
    onTestFinished(() => gateway.close());
    const link = openSdkLink({
      authtoken: () => gateway.authtoken,
      serverAddr: gateway.sessionAddress,
      authorities: { pem: gateway.sessionCa },
      proxies: NO_PROXIES,
      version: '1.0.0',
      log: silentLog,
      clock: systemClock,
    });
    const session = await link.connect();
    onTestFinished(async () => {
      await session.close();
      link.close();
    });
    const connections = connectionsTo(gateway.sessionPort);
    expect(connections).toHaveLength(1);
    expect(connections.map(hasNoDelay)).toEqual([true]);
  },
);

it(
  'descriptors serve their next owners after the connection has ended',
  unless(firstOf(NO_LINUX, NO_PYTHON)),
  async () => {
    const server = createServer({ pauseOnConnect: true }, (socket) => socket.pipe(socket));
    const port = await listening(server);
    const open: Socket[] = [];
    const dial = async () => {
      const socket = connect(port, '127.0.0.1').pause();
      open.push(socket);
      await once(socket, 'connect');
      return socket;
    };
    onTestFinished(() => {
      for (const socket of open) socket.destroy();
      server.close();
    });
    for (let round = 0; round < 3; round++) {
      const socket = await dial();
      setNoDelay(
        ownConnections('established', (peer) => peer === port),
        silentLog,
      );
      expect(connectionsTo(port).map(hasNoDelay)).toEqual([true]);
      socket.write('echo');
      const [answer] = await once(socket.resume(), 'data');
      expect(String(answer)).toBe('echo');
      socket.destroy();
      await once(socket, 'close');
    }
  },
);
