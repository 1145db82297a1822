import { expect, it } from 'vitest';
import { ClientPlaces, NoPlaceLeft } from '../../../src/lib/network/client-places.ts';

/** Work that lasts until it is aborted. */
const endless = (places: ClientPlaces, address: string, left?: AbortSignal) =>
  places.run(
    address,
    left,
    (end) =>
      new Promise<never>((_, reject) => end.signal.addEventListener('abort', () => reject(new Error('aborted')))),
  );

const quick = (places: ClientPlaces, address: string) => places.run(address, undefined, async () => 'done');

it('the network with the most gives its newest place to another one, and gets none of others', async () => {
  const places = new ClientPlaces(3);
  let isFirstOver = false;
  endless(places, '192.0.2.1').catch(() => {
    isFirstOver = true;
  });
  endless(places, '192.0.2.1').catch(() => {});
  const newest = endless(places, '192.0.2.1');
  await expect(quick(places, '192.0.2.1')).rejects.toThrow(NoPlaceLeft);
  const other = endless(places, '198.51.100.1');
  await expect(newest).rejects.toThrow(NoPlaceLeft);
  await expect(quick(places, '192.0.2.1')).rejects.toThrow(NoPlaceLeft);
  // Nobody has two more than this one would have then.
  await expect(quick(places, '198.51.100.1')).rejects.toThrow(NoPlaceLeft);
  expect(isFirstOver).toBe(false);
  expect(await Promise.race([other, 'at work'])).toBe('at work');
});

it('work that has ended, and a client that leaves, give the place back once', async () => {
  const places = new ClientPlaces(1);
  expect(await quick(places, '192.0.2.1')).toBe('done');
  await expect(places.run('192.0.2.1', undefined, async () => Promise.reject(new Error('broken')))).rejects.toThrow(
    'broken',
  );
  const leaving = new AbortController();
  const left = endless(places, '192.0.2.1', leaving.signal);
  await expect(quick(places, '192.0.2.1')).rejects.toThrow(NoPlaceLeft);
  leaving.abort(new Error('left'));
  expect(await quick(places, '192.0.2.1')).toBe('done');
  await expect(left).rejects.toThrow('left');
  endless(places, '192.0.2.1').catch(() => {});
  await expect(quick(places, '192.0.2.1')).rejects.toThrow(NoPlaceLeft);
  await expect(endless(places, '198.51.100.1', leaving.signal)).rejects.toThrow('left');
});
