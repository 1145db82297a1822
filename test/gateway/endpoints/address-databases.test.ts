import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { AddressDatabases } from '../../../src/gateway/endpoints/address-databases.ts';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import { mmdbFile } from '../../support/mmdb-file.ts';
import { recordingLog, silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { bodyOf, onRequest, respondWith } from '../../traffic-policy/actions/run-action.ts';
import { connectionFrom, requestFor } from '../../traffic-policy/fake-request.ts';

const names = (en: string) => ({ names: { en } });
const HAMBURG = {
  city: names('Hamburg'),
  continent: names('Europe'),
  country: { ...names('Germany'), iso_code: 'DE', is_in_european_union: true },
  location: { latitude: 53.55, longitude: 9.99, accuracy_radius: 20, time_zone: 'Europe/Berlin' },
  postal: { code: '20095' },
  registered_country: { ...names('Switzerland'), iso_code: 'CH' },
  subdivisions: [names('Free and Hanseatic City of Hamburg')],
};

async function open(geo: object, log = silentLog) {
  const folder = temporaryFolder();
  const paths = { geo: join(folder, 'geo.mmdb'), asn: join(folder, 'asn.mmdb') };
  writeFileSync(paths.geo, mmdbFile(geo as never));
  writeFileSync(
    paths.asn,
    mmdbFile({ '203.0.0.0/8': { autonomous_system_number: 64_496, autonomous_system_organization: 'Example' } }),
  );
  const databases = await AddressDatabases.open(paths, log);
  onTestFinished(() => databases.close());
  const read = async (clientIp: string, ...variables: string[]) => {
    const text = onRequest(respondWith(`json.encode([${variables.map((name) => `conn.${name}`).join(', ')}])`));
    const ports = { findAddress: (address: string) => databases.find(address) };
    const request = requestFor({ connection: { ...connectionFrom(), clientIp } });
    return JSON.parse(bodyOf(await compilePolicy(text, 'https', { ports }).onHttpRequest?.(request)));
  };
  return { databases, paths, read };
}

it('policies read where clients are, and whose network they use', async () => {
  const { read } = await open({ '203.0.113.0/24': HAMBURG });
  const place = ['city', 'country_code', 'latitude', 'radius', 'is_eu', 'subdivision', 'timezone', 'metro_code'];
  const location = place.map((name) => `client_ip.geo.location.${name}`);
  expect(await read('203.0.113.7', ...location)).toEqual([
    ...['Hamburg', 'DE', '53.55', '20', true, 'Free and Hanseatic City of Hamburg', 'Europe/Berlin', ''],
  ]);
  const others = [
    'geo.country',
    'client_ip.geo.registered_location.country_code',
    'client_ip.as.number',
    'client_ip.as.organization',
  ];
  expect(await read('203.0.113.7', ...others)).toEqual(['Germany', 'CH', 64_496, 'Example']);
  expect(await read('203.1.2.3', ...others)).toEqual(['', '', 64_496, 'Example']);
  expect(await read('2001:db8::1', ...others)).toEqual(['', '', 0, '']);
});

it('a database that was replaced is read again, and one that is unusable is not', async () => {
  const { log, lines } = recordingLog();
  const { databases, paths, read } = await open({ '203.0.113.0/24': HAMBURG }, log);
  const replace = async (content: Buffer | string) => {
    writeFileSync(`${paths.geo}.new`, content);
    renameSync(`${paths.geo}.new`, paths.geo);
    await databases.refresh();
  };
  await replace(mmdbFile({ '203.0.113.0/24': { city: names('Bremen') } }));
  expect(await read('203.0.113.7', 'geo.city')).toEqual(['Bremen']);
  await replace('not a database');
  expect(await read('203.0.113.7', 'geo.city')).toEqual(['Bremen']);
  expect(lines.map(({ msg }) => msg)).toEqual(['address database unusable; keeping the one in memory']);
});

it.each(['missing.mmdb', 'text.mmdb'])('an unusable database stops the start (%s)', async (name) => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'text.mmdb'), 'not a database');
  const opening = AddressDatabases.open({ geo: join(folder, name), asn: null }, silentLog);
  await expect(opening).rejects.toThrow(/cannot use GATEWAY_GEO_DATABASE.*give an MMDB file/);
});
