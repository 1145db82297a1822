/**
 * Stands in for systemd, in a process of its own: holds listening sockets, and starts a program on them again whenever it ends.
 * It accepts nothing itself, as it waits for the program without turning its event loop.
 */
const HOLDER = `
const { spawnSync } = require('node:child_process');
const { once } = require('node:events');
const { createServer } = require('node:net');
(async () => {
  const [ports, delayMs, ...command] = process.argv.slice(1);
  const servers = ports.split(',').map((port) => createServer().listen(Number(port), '127.0.0.1', 4096));
  const listening = Promise.all(servers.map((server) => once(server, 'listening')));
  await listening;
  const fds = servers.map((server) => server._handle.fd);
  const start = 'printf \\'{"level":"info","msg":"process started","pid":%s}\\\\n\\' $$; LISTEN_PID=$$ exec "$@"';
  const env = { ...process.env, LISTEN_FDS: String(fds.length), LISTEN_FDNAMES: fds.map(() => 'x.socket').join(':') };
  for (;;) {
    const { signal } = spawnSync('sh', ['-c', start, 'sh', ...command], { env, stdio: ['ignore', 1, 2, ...fds] });
    if (signal !== null) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Number(delayMs));
  }
})();
`;

/**
 * A prefix for command lines of programs that are to be held so. They log the message `process started` with their `pid` first.
 *
 * @param crashDelayMs from an end by a signal to the next start
 */
export function socketHolder(ports: readonly number[], crashDelayMs: number): string[] {
  return [process.execPath, '-e', HOLDER, ports.join(','), String(crashDelayMs)];
}
