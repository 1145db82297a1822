import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import {
  hasJoined,
  installationFor,
  machineId,
  readInstallation,
  withoutSecret,
  writeInstallation,
} from '../../../src/agent/join/installation.ts';
import { formatJoinCode, parseJoinCode } from '../../../src/management/join-code.ts';
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

it('a joined device has forgotten the secret of its code, but knows the code and its gateway again', () => {
  const spent = withoutSecret(HERE);
  expect(parseJoinCode(spent)).toMatchObject({ origin: 'https://api.example.com', pin: Buffer.alloc(32, 1) });
  expect(parseJoinCode(spent)?.secret).not.toContain('a_b');
  const device = {
    id: 'dv_1',
    name: 'cabinet-7',
    site: 'sitea.example.com',
    domain: 'agent-cabinet-7.sitea.example.com',
  };
  const first = { ...installationFor(HERE, null, 'machine'), code: spent };
  const joined = { ...first, device };
  expect(hasJoined(joined, HERE, 'machine')).toBe(true);
  // Interrupted before the end, maybe on its way to another site.
  expect(hasJoined({ ...joined, code: HERE }, HERE, 'machine')).toBe(false);
  expect(hasJoined(joined, code('https://api.example.com', 'c_d'), 'machine')).toBe(false);
  expect(hasJoined(joined, HERE, 'another machine')).toBe(false);
  expect(hasJoined(first, HERE, 'machine')).toBe(false);
  expect(installationFor(HERE, joined, 'machine')).toEqual({ ...joined, code: HERE });
});

it('a damaged file is reported, not replaced: the device would become another one', async () => {
  const file = join(temporaryFolder(), 'data', 'enrolment.json');
  expect(await readInstallation(file)).toBeNull();
  const written = installationFor(HERE, null, null);
  await writeInstallation(file, written);
  expect(await readInstallation(file)).toEqual(written);
  writeFileSync(file, '{');
  await expect(readInstallation(file)).rejects.toThrow(/is damaged/);
  // An older version wrote no checksum.
  writeFileSync(file, JSON.stringify(written));
  expect(await readInstallation(file)).toEqual(written);
});

it('no flipped bit of the file makes another device', async () => {
  const file = join(temporaryFolder(), 'enrolment.json');
  const written = installationFor(HERE, null, 'machine');
  await writeInstallation(file, written);
  const intact = readFileSync(file);
  for (let bit = 0; bit < intact.length * 8; bit += 7) {
    const bytes = Buffer.from(intact);
    bytes.writeUInt8(bytes.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
    writeFileSync(file, bytes);
    const found = await readInstallation(file).catch(() => 'damaged');
    if (found !== 'damaged') expect(found, bytes.toString()).toEqual(written);
  }
});

it('a machine is told from others by its serial number, if it has one', () => {
  const folder = temporaryFolder();
  const [serial, zeros] = ['serial', 'zeros'].map((name) => join(folder, name));
  writeFileSync(String(serial), '100000003d1d1c36\0');
  writeFileSync(String(zeros), '0000000000000000\n');
  expect(machineId([String(zeros), join(folder, 'missing')])).toBeNull();
  expect(machineId([String(zeros), String(serial)])).toMatch(/^[0-9a-f]{32}$/);
});
