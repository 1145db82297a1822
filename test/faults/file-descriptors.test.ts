import { execFileSync } from 'node:child_process';
import { connect, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { GatewayProcess } from '../support/gateway-process.ts';
import { processResources } from '../support/process-resources.ts';
import { NO_LINUX, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

it('a gateway that runs out of file descriptors logs it, although Node reports nothing', unless(NO_LINUX), async () => {
  const folder = temporaryFolder();
  const gateway = await GatewayProcess.start(folder);
  onTestFinished(() => gateway.kill());
  const { pid } = gateway.process.child;
  const limit = processResources(pid).fds + 5;
  execFileSync('prlimit', ['--pid', String(pid), `--nofile=${limit}:`]);
  const clients: Socket[] = Array.from({ length: 20 }, () =>
    connect(gateway.httpPort, '127.0.0.1').on('error', () => {}),
  );
  onTestFinished(() => clients.forEach((client) => void client.destroy()));
  const line = await gateway.process.logged('no file descriptor left: new connections are closed');
  expect(line).toMatchObject({ level: 'error', code: 'EMFILE' });
});
