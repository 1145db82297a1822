import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { until } from './until.ts';

/** A server of another project, as a process that listens on a unix socket. */
export interface RealUpstream {
  open(): Duplex;
  stop(): Promise<void>;
}

/**
 * Starts a server and waits until it accepts connections.
 *
 * @param folder of the socket, and the process's working folder
 * @param command program and arguments; `SOCKET` stands for the socket's path
 */
export async function startUpstream(folder: string, command: readonly string[]): Promise<RealUpstream> {
  const socket = join(folder, 'upstream.sock');
  const [program = '', ...args] = command.map((part) => part.replace('SOCKET', socket));
  const server = spawn(program, args, { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] });
  const exited = once(server, 'exit');
  let said = '';
  server.stderr.on('data', (text) => {
    said += text;
  });
  const stop = async () => {
    server.kill();
    await exited;
  };
  await until(
    async () => {
      if (server.exitCode !== null) throw new Error(`${program} ended: ${said}`);
      const trial = connect(socket);
      const accepted = await once(trial, 'connect').catch(() => null);
      trial.destroy();
      return accepted !== null;
    },
    `${program} accepts connections`,
    { withinMs: 20_000, everyMs: 20 },
  ).catch(async (error: unknown) => {
    await stop();
    throw error;
  });
  const open = () => connect({ path: socket, allowHalfOpen: true }).on('error', () => {});
  return { open, stop };
}
