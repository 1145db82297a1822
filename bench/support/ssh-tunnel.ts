import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { temporaryFolder } from './folders.ts';
import { freePort, HERE, startChild } from './process.ts';

const SSHD = '/usr/sbin/sshd';

/**
 * The baseline: `ssh -R` through a private sshd to the upstream on the device; null without sshd.
 *
 * @returns the port on the gateway's loopback
 */
export async function startSshTunnel(
  upstreamPort: number,
  { gateway, device } = { gateway: HERE, device: HERE },
): Promise<{ port: number; stop(): Promise<void> } | null> {
  if (!existsSync(SSHD)) return null;
  const folder = temporaryFolder();
  for (const name of ['host', 'user']) {
    execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(folder, name)]);
  }
  execFileSync('cp', [join(folder, 'user.pub'), join(folder, 'authorized')]);
  const [sshdPort, port] = [await freePort(), await freePort()];
  writeFileSync(join(folder, 'config'), sshdConfig(folder, gateway.address, sshdPort));
  if (process.getuid?.() === 0) mkdirSync('/run/sshd', { recursive: true });
  const listening = (line: string) => (line.includes('Server listening') ? true : undefined);
  // sshd and ssh write to standard error, which a shell joins with standard output.
  const sshd = await startChild('sh', ['-c', `exec ${SSHD} -D -e -f ${folder}/config 2>&1`], {}, listening, gateway);
  const command = sshCommand(folder, `-p ${sshdPort} ${userInfo().username}@${gateway.address}`, port, upstreamPort);
  const ssh = await startChild('sh', ['-c', command], {}, forwarding, device);
  return {
    port,
    stop: async () => {
      await ssh.stop();
      await sshd.stop();
    },
  };
}

function forwarding(line: string): true | undefined {
  return line.includes('remote forward success') ? true : undefined;
}

function sshdConfig(folder: string, address: string, port: number): string {
  return [
    `Port ${port}`,
    `ListenAddress ${address}`,
    `HostKey ${folder}/host`,
    `AuthorizedKeysFile ${folder}/authorized`,
    'StrictModes no',
    'UsePAM no',
    'PidFile none',
    'PermitRootLogin yes',
    '',
  ].join('\n');
}

function sshCommand(folder: string, server: string, port: number, upstreamPort: number): string {
  const options = ['StrictHostKeyChecking=no', 'UserKnownHostsFile=/dev/null', 'ExitOnForwardFailure=yes'];
  return [
    'exec ssh -v -N',
    ...options.map((option) => `-o ${option}`),
    `-i ${folder}/user -R 127.0.0.1:${port}:127.0.0.1:${upstreamPort}`,
    `${server} 2>&1`,
  ].join(' ');
}
