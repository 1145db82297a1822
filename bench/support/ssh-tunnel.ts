import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { temporaryFolder } from './folders.ts';
import { type Child, freePort, startChild } from './process.ts';

const SSHD = '/usr/sbin/sshd';

/** The baseline: `ssh -R` through a private sshd on loopback to the upstream; null without sshd. */
export async function startSshTunnel(upstreamPort: number): Promise<{ port: number; stop(): Promise<void> } | null> {
  if (!existsSync(SSHD)) return null;
  const folder = temporaryFolder();
  for (const name of ['host', 'user']) {
    execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(folder, name)]);
  }
  execFileSync('cp', [join(folder, 'user.pub'), join(folder, 'authorized')]);
  const [sshdPort, port] = [await freePort(), await freePort()];
  writeFileSync(join(folder, 'config'), sshdConfig(folder, sshdPort));
  if (process.getuid?.() === 0) mkdirSync('/run/sshd', { recursive: true });
  const listening = (line: string) => (line.includes('Server listening') ? true : undefined);
  // sshd and ssh write to standard error, which a shell joins with standard output.
  const sshd = await startChild('sh', ['-c', `exec ${SSHD} -D -e -f ${folder}/config 2>&1`], {}, listening);
  const ssh = await startClient(folder, sshdPort, port, upstreamPort);
  return {
    port,
    stop: async () => {
      await ssh.stop();
      await sshd.stop();
    },
  };
}

function sshdConfig(folder: string, port: number): string {
  return [
    `Port ${port}`,
    'ListenAddress 127.0.0.1',
    `HostKey ${folder}/host`,
    `AuthorizedKeysFile ${folder}/authorized`,
    'StrictModes no',
    'UsePAM no',
    'PidFile none',
    'PermitRootLogin yes',
    '',
  ].join('\n');
}

function startClient(folder: string, sshdPort: number, port: number, upstreamPort: number): Promise<Child<boolean>> {
  const options = ['StrictHostKeyChecking=no', 'UserKnownHostsFile=/dev/null', 'ExitOnForwardFailure=yes'];
  const command = [
    'exec ssh -v -N',
    ...options.map((option) => `-o ${option}`),
    `-i ${folder}/user -p ${sshdPort}`,
    `-R 127.0.0.1:${port}:127.0.0.1:${upstreamPort}`,
    `${userInfo().username}@127.0.0.1 2>&1`,
  ].join(' ');
  return startChild('sh', ['-c', command], {}, (line) => (line.includes('remote forward success') ? true : undefined));
}
