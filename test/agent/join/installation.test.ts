import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { installationFor, readInstallation, writeInstallation } from '../../../src/agent/join/installation.ts';
import { machineId } from '../../../src/agent/join/machine.ts';
import { formatJoinCode } from '../../../src/management/join-code.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const code = (origin: string, secret = 'a_b') =>
  formatJoinCode({ origin, pin: Buffer.alloc(32, 1), isPublic: false, secret });
const HERE = code('https://api.example.com');

it('a device stays the same one with every code of its gateway', () => {
  const first = installationFor(HERE, null, 'machine');
  expect(first.install_key).toMatch(/^[\w-]{43}$/);
  expect(installationFor(HERE, first, 'machine')).toEqual(first);
  const other = code('https://api.example.com', 'c_d');
  expect(installationFor(other, first, 'machine')).toEqual({ ...first, code: other });
  expect(installationFor(HERE, first, null).install_key).toBe(first.install_key);
});

it('a copy of the card in another machine, and another gateway, get a key of their own', () => {
  const first = installationFor(HERE, null, 'machine');
  expect(installationFor(HERE, first, 'another machine').install_key).not.toBe(first.install_key);
  expect(installationFor(code('https://api.other.com'), first, 'machine').install_key).not.toBe(first.install_key);
});

it('a damaged file is reported, not replaced: the device would become another one', async () => {
  const file = join(temporaryFolder(), 'data', 'enrolment.json');
  expect(await readInstallation(file)).toBeNull();
  const written = installationFor(HERE, null, null);
  await writeInstallation(file, written);
  expect(await readInstallation(file)).toEqual(written);
  writeFileSync(file, '{');
  await expect(readInstallation(file)).rejects.toThrow(/is damaged/);
});

it('a machine is told from others by its serial number, if it has one', () => {
  const folder = temporaryFolder();
  const [serial, zeros] = ['serial', 'zeros'].map((name) => join(folder, name));
  writeFileSync(String(serial), '100000003d1d1c36\0');
  writeFileSync(String(zeros), '0000000000000000\n');
  expect(machineId([String(zeros), join(folder, 'missing')])).toBeNull();
  expect(machineId([String(zeros), String(serial)])).toMatch(/^[0-9a-f]{32}$/);
});
