import { expect, it } from 'vitest';
import { LostAddresses } from '../../../src/gateway/endpoints/lost-addresses.ts';

let now = 0;
const note = (lost: LostAddresses, place: string, absence: 'lost' | 'leaving' = 'lost') =>
  lost.note({ place, credentialId: 'cr_1', needsHandshake: false }, absence);

it('expects an agent for 10 s, and one that has unbound its endpoint for one', () => {
  const lost = new LostAddresses(() => now);
  note(lost, 'tls a.localhost');
  note(lost, 'tls b.localhost', 'leaving');
  now += 999;
  expect(lost.all()).toHaveLength(2);
  now += 1;
  expect(lost.at('tls b.localhost')).toBeUndefined();
  now += 8_999;
  expect(lost.at('tls a.localhost')).toBeDefined();
  now += 1;
  expect(lost.at('tls a.localhost')).toBeUndefined();
});

it('finds the most specific name that covers a host, of clients of one port', () => {
  const lost = new LostAddresses();
  note(lost, 'tls *.localhost');
  note(lost, 'tls cam.localhost');
  note(lost, 'http web.localhost');
  expect(lost.covering('tls', 'cam.localhost')?.place).toBe('tls cam.localhost');
  expect(lost.covering('tls', 'web.localhost')?.place).toBe('tls *.localhost');
  expect(lost.covering('http', 'cam.localhost')).toBeUndefined();
});

it('says when an address is online again, once', () => {
  const lost = new LostAddresses();
  const found: string[] = [];
  lost.on('found', (place) => found.push(place));
  note(lost, 'tls cam.localhost');
  lost.found('tls other.localhost');
  lost.found('tls cam.localhost');
  lost.found('tls cam.localhost');
  expect(found).toEqual(['tls cam.localhost']);
});
