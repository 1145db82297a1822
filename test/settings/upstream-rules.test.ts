import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { parseUpstreamRules } from '../../src/settings/upstream-rules.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

describe('UpstreamRules.allowsAddress', () => {
  it.each([
    ['loopback', '127.0.0.1', true],
    ['loopback', '127.255.0.9', true],
    ['loopback', '::1', true],
    ['loopback', '::ffff:127.0.0.1', true],
    ['loopback', '::ffff:0:127.0.0.1', true],
    ['loopback', '::ffff:0:10.0.0.1', false],
    ['loopback', '10.0.0.1', false],
    ['private', '10.1.2.3', true],
    ['private', '172.31.0.1', true],
    ['private', '172.32.0.1', false],
    ['private', '192.168.0.1', true],
    ['private', 'fd12::1', true],
    ['private', '8.8.8.8', false],
    ['any', '8.8.8.8', true],
    ['any', '2606:4700::1', true],
    ['any', '2001:db8::1', true],
    ['any', '64:ff9b:2::1', true],
    ['any:443', '8.8.8.8', false],
    ['loopback:80', '127.0.0.1', true],
    ['loopback:8000-8999', '127.0.0.1', false],
    ['192.168.1.0/24', '192.168.1.77', true],
    ['192.168.1.0/24:80', '192.168.1.77', true],
    ['192.168.1.9', '192.168.1.8', false],
    ['fd00::/8', 'fdff::1', true],
    ['[fd00::/8]:81', 'fdff::1', false],
    ['[::1]:80', '::1', true],
    ['loopback , private', '10.0.0.1', true],
    ['any:65535', '8.8.8.8', false],
    ['any:1-65535', '8.8.8.8', true],
    ['unix,loopback', '127.0.0.1', true],
    ['192.168.1.0/24', 'not-an-address', false],
  ])('rules %s, address %s: %s', (rules, address, allowed) => {
    expect(parseUpstreamRules(rules).allowsAddress(address, 80)).toBe(allowed);
  });

  it.each([
    '0.0.0.0',
    '0.1.2.3',
    '::',
    '169.254.169.254',
    '::ffff:169.254.169.254',
    '::ffff:a9fe:a9fe',
    '::169.254.169.254',
    '64:ff9b::a9fe:a9fe',
    '2002:a9fe:a9fe::1',
    '::ffff:0:169.254.169.254',
    '64:ff9b:1::a9fe:a9fe',
    '64:ff9b:1:a9fe:a9:fe00::',
    '2001::1',
    '2001:0:4136:e378:8000:63bf:5601:5601',
    '::ffff:0.0.0.0',
    'fe80::1',
    'febf::1',
    'fe80::1%eth0',
    'fec0::1',
    'feff::1',
    'fd00:ec2::254',
    'fd20:ce::254',
    '100.100.100.200',
    '168.63.129.16',
    '192.0.0.192',
    '224.0.0.1',
    'ff02::1',
    '240.0.0.1',
    '255.255.255.255',
  ])('no rule allows %s', (address) => {
    const rules = parseUpstreamRules('any,0.0.0.0/0,::/0,evil.example,*.example,169.254.169.254,fd00::/8');
    expect(rules.allowsAddress(address, 80)).toBe(false);
    expect(rules.allowsAddress(address, 80, 'evil.example')).toBe(false);
  });

  it('allows a name or a suffix whatever address it resolves to', () => {
    const rules = parseUpstreamRules('cam.example:80,*.site.example');
    expect(rules.allowsAddress('8.8.8.8', 80, 'cam.example')).toBe(true);
    expect(rules.allowsAddress('8.8.8.8', 81, 'cam.example')).toBe(false);
    expect(rules.allowsAddress('8.8.8.8', 80, 'a.cam.example')).toBe(false);
    expect(rules.allowsAddress('8.8.8.8', 81, 'a.b.site.example')).toBe(true);
    expect(rules.allowsAddress('8.8.8.8', 81, 'site.example')).toBe(false);
    expect(rules.allowsAddress('8.8.8.8', 81, 'evilsite.example')).toBe(false);
    expect(rules.allowsAddress('8.8.8.8', 80)).toBe(false);
  });

  it('treats IPv4-mapped addresses like the IPv4 addresses', () => {
    fc.assert(
      fc.property(fc.ipV4(), (address) => {
        const mapped = `::ffff:${address}`;
        for (const text of ['loopback,private', 'any', '10.0.0.0/7']) {
          const rules = parseUpstreamRules(text);
          expect(rules.allowsAddress(mapped, 80)).toBe(rules.allowsAddress(address, 80));
        }
      }),
    );
  });

  it.each([
    ['', 'empty entry'],
    ['loopback,,private', 'empty entry'],
    ['10.0.0.0/33', '10.0.0.0/33'],
    ['10.0.0/8', '10.0.0/8'],
    ['010.0.0.1', '010.0.0.1'],
    ['host:0', 'a port or a range'],
    ['host:90-80', 'a port or a range'],
    ['host:http', 'a port or a range'],
    ['host:65536', 'a port or a range'],
    ['host:x80', 'a port or a range'],
    ['host:80x', 'a port or a range'],
    ['[::1]x', 'not a host'],
    ['x[::1]', 'not a host'],
    ['0x7f', 'not a host'],
    ['host.0x', 'not a host'],
    ['host.12', 'not a host'],
    ['ho st', 'ho st'],
    ['http://host', 'http://host'],
    ['*', 'not a host'],
    ['127.1', 'not a host'],
    ['unix:app.sock', 'absolute'],
  ])('parseUpstreamRules rejects %j', (text, problem) => {
    expect(() => parseUpstreamRules(text)).toThrow(problem);
  });
});

describe('UpstreamRules with unix sockets', () => {
  it('allows no socket without a rule', async () => {
    const path = join(temporaryFolder(), 'app.sock');
    for (const text of ['loopback,private', 'any', 'unix:/elsewhere']) {
      expect(await parseUpstreamRules(text).allowsSocket(path)).toBe(false);
    }
  });

  it('`unix` allows the user’s own sockets outside system folders', async () => {
    const rules = parseUpstreamRules('unix');
    const path = join(temporaryFolder(), 'app.sock');
    expect(await rules.allowsSocket(path)).toBe(true);
    await writeFile(path, '');
    expect(await rules.allowsSocket(path)).toBe(true);
    expect(await rules.allowsSocket('/run/docker.sock')).toBe(false);
    expect(await rules.allowsSocket('/var/run/docker.sock')).toBe(false);
  });

  it('`unix` is a keyword among others, and only as a whole entry', async () => {
    const path = join(temporaryFolder(), 'app.sock');
    expect(await parseUpstreamRules('loopback,UNIX').allowsSocket(path)).toBe(true);
    for (const text of ['unix-host', 'my.unix', 'unixhost']) {
      const rules = parseUpstreamRules(text);
      expect(await rules.allowsSocket(path)).toBe(false);
      expect(rules.allowsAddress('8.8.8.8', 80, text)).toBe(true);
    }
  });

  it('`unix` rejects sockets of another user', async () => {
    const path = join(temporaryFolder(), 'other.sock');
    await writeFile(path, '');
    await chmod(path, 0o666);
    const owner = vi.spyOn(process, 'geteuid').mockReturnValue(Number(process.geteuid?.()) + 1);
    onTestFinished(() => owner.mockRestore());
    expect(await parseUpstreamRules('unix').allowsSocket(path)).toBe(false);
  });

  it('an error other than a missing file is not taken for permission', async () => {
    const file = join(temporaryFolder(), 'file');
    await writeFile(file, '');
    await expect(parseUpstreamRules('unix').allowsSocket(join(file, 'app.sock'))).rejects.toThrow('ENOTDIR');
  });

  it('`unix` rejects sockets that are closed to other users', async () => {
    const path = join(temporaryFolder(), 'agent.sock');
    await writeFile(path, '', { mode: 0o600 });
    expect(await parseUpstreamRules('unix').allowsSocket(path)).toBe(false);
    expect(await parseUpstreamRules(`unix:${path}`).allowsSocket(path)).toBe(true);
  });

  it('resolveSocket returns the checked path, and throws when nothing exists there', async () => {
    const folder = temporaryFolder();
    const rules = parseUpstreamRules('unix');
    await symlink('app.sock', join(folder, 'link'));
    await expect(rules.resolveSocket(join(folder, 'link'))).rejects.toThrow('ENOENT');
    await writeFile(join(folder, 'app.sock'), '');
    expect(await rules.resolveSocket(join(folder, 'link'))).toBe(join(folder, 'app.sock'));
    await symlink('/etc/passwd', join(folder, 'other'));
    expect(await rules.resolveSocket(join(folder, 'other'))).toBeNull();
  });

  it('resolves symbolic links before the check', async () => {
    const folder = temporaryFolder();
    await symlink('/run', join(folder, 'harmless'));
    await symlink('/run/docker.sock', join(folder, 'app.sock'));
    expect(await parseUpstreamRules('unix').allowsSocket(join(folder, 'harmless/docker.sock'))).toBe(false);
    expect(await parseUpstreamRules(`unix:${folder}`).allowsSocket(join(folder, 'harmless/docker.sock'))).toBe(false);
  });

  it('`unix:/path` allows that socket, or all in that folder', async () => {
    const folder = temporaryFolder();
    await mkdir(join(folder, 'apps'));
    const rules = parseUpstreamRules(`unix:${folder}/apps//,unix:/run/app.sock`);
    expect(await rules.allowsSocket(join(folder, 'apps/one.sock'))).toBe(true);
    expect(await rules.allowsSocket(join(folder, 'apps-not.sock'))).toBe(false);
    expect(await rules.allowsSocket('/run/app.sock')).toBe(true);
    expect(await rules.allowsSocket('/run/app.sock2')).toBe(false);
  });
});
