import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, it, onTestFinished } from 'vitest';
import { agentSettings, getPublic, startTestGateway } from '../../support/gateway.ts';
import { startHttpService } from '../../support/http-service.ts';
import { firstOf, unless } from '../../support/requirements.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { buildPackages, commandsInDocs, makeKey, publish, serve } from './apt-repository.ts';
import { debianRoot, NO_DEBIAN_ROOT } from './debian-root.ts';

const COMMON = ['systemd', 'curl', 'ca-certificates', 'libstdc++6', 'libgcc-s1'];
const NO_EMULATION = firstOf(
  NO_DEBIAN_ROOT,
  existsSync('/proc/sys/fs/binfmt_misc/qemu-aarch64') && existsSync('/proc/sys/fs/binfmt_misc/qemu-arm')
    ? null
    : 'qemu-user-static and binfmt_misc are required',
);

/** Runs commands in a copy of a root with this machine's network. $0: folder, $1: root, $2: CA, $3: commands */
const ENTER = `
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$0/upper,workdir=$0/work" "$0/root"
mount -t proc proc "$0/root/proc"
for name in null zero random urandom; do touch "$0/root/dev/$name"; mount --bind /dev/$name "$0/root/dev/$name"; done
cp "$2" "$0/root/gateway-ca.pem"
printf '#!/bin/sh\\nexec "$@"\\n' > "$0/root/usr/local/bin/sudo"
chmod +x "$0/root/usr/local/bin/sudo"
rm -rf "$0/root/etc/apt/sources.list" "$0/root/etc/apt/sources.list.d/"*
exec chroot "$0/root" sh -c "$3"
`;

describe.each([
  ['arm64', COMMON],
  ['armhf', [...COMMON, 'nodejs']],
])('the package for %s, emulated', { timeout: 1_800_000, ...unless(NO_EMULATION) }, (architecture, include) => {
  it('is installed by the commands of the docs, and carries a tunnel with each connector', async () => {
    const debs = temporaryFolder();
    const repository = temporaryFolder();
    const key = makeKey(temporaryFolder());
    const root = await debianRoot('trixie', architecture, include);
    const server = await serve(repository, '127.0.0.1');
    onTestFinished(server.close);
    buildPackages(architecture, '0.0.9', debs);
    publish(
      repository,
      key,
      server.url,
      readdirSync(debs).map((name) => join(debs, name)),
    );
    const gateway = await startTestGateway();
    onTestFinished(() => gateway.close());
    const service = await startHttpService((_request, res) => res.end('picture'));
    onTestFinished(() => service.close());
    const settings = Object.entries({ ...agentSettings(gateway), NGROK_CA_CERT: '/gateway-ca.pem' });
    const tunnel = `device-agent http ${new URL(service.url).port} --domain`;
    // Each line from the test ends a tunnel.
    const script = `
      set -e
      cd /tmp
      ${commandsInDocs(server.url).join('\n')}
      export ${settings.map(([name, value]) => `${name}='${value}'`).join(' ')}
      for connector in native sdk; do
        AGENT_CONNECTOR=$connector ${tunnel} $connector-${architecture}.localhost &
        read -r line
        kill $!
        wait $! || true
      done`;
    const began = performance.now();
    const child = spawn(
      'unshare',
      [
        '--mount',
        '--pid',
        '--fork',
        '--kill-child',
        'sh',
        '-c',
        ENTER,
        temporaryFolder(),
        root,
        gateway.caFile,
        script,
      ],
      { stdio: ['pipe', 'pipe', 'inherit'], env: { PATH: process.env.PATH, DEBIAN_FRONTEND: 'noninteractive' } },
    );
    const closed = once(child, 'close');
    onTestFinished(async () => {
      child.kill('SIGKILL');
      await closed;
    });
    const served: string[] = [];
    for await (const line of createInterface({ input: child.stdout })) {
      const seconds = ((performance.now() - began) / 1000).toFixed(1);
      const [, url] = /^(https:\S+) -> /.exec(line) ?? [];
      if (url === undefined) continue;
      process.stdout.write(`  measured: ${architecture}, emulated: ${url} after ${seconds} s\n`);
      served.push((await getPublic(gateway, url)).body);
      child.stdin.write('\n');
    }
    expect(served).toEqual(['picture', 'picture']);
    expect(await closed).toEqual([0, null]);
  });
});
