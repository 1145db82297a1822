import { once } from 'node:events';
import { createServer, get, type IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { constants, createGunzip } from 'node:zlib';
import { expect, it } from 'vitest';
import { EventStreams, eventText } from '../../../src/lib/http/event-streams.ts';
import { serving } from '../../support/loopback.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { until } from '../../support/until.ts';

const BROWSER = { 'accept-encoding': 'gzip, deflate, br, zstd' };

async function setUp({ isCompressible = true, first = eventText('first', {}), isAllowed = (): boolean => true } = {}) {
  const clock = new SteeredClock();
  const streams = new EventStreams(clock, 1_000, () => {}, isCompressible);
  const port = await serving(createServer((_req, res) => streams.add(res, null, first, isAllowed)));
  const send = (text: string) => {
    for (const [stream] of streams) stream.send(text);
  };
  /** A reader: its answer, and what it has decoded so far. */
  const open = async (headers: Record<string, string>) => {
    const [answer] = (await once(get({ port, host: '127.0.0.1', headers }), 'response')) as [IncomingMessage];
    const read = { answer, text: '', bytes: 0, ended: false };
    answer.on('data', (piece: Buffer) => {
      read.bytes += piece.length;
    });
    answer.on('error', () => {});
    const isCompressed = answer.headers['content-encoding'] === 'gzip';
    const plain: Readable = isCompressed ? answer.pipe(createGunzip({ finishFlush: constants.Z_SYNC_FLUSH })) : answer;
    plain.on('data', (piece: Buffer) => {
      read.text += piece;
    });
    plain.once('end', () => {
      read.ended = true;
    });
    return read;
  };
  return { streams, clock, send, open };
}

it('a browser gets each event compressed and at once, and the rest when the server stops', async () => {
  const { streams, send, open } = await setUp();
  const page = await open(BROWSER);
  await until(() => page.text === eventText('first', {}), 'the first event');
  expect(page.answer.headers).toMatchObject({ 'content-encoding': 'gzip', vary: 'Accept-Encoding' });
  const events = Array.from({ length: 200 }, (_, n) => eventText('change', { url: `https://cam-${n}.example.com` }));
  for (const event of events.slice(0, 3)) {
    send(event);
    await until(() => page.text.endsWith(event), 'the event, before the next one is sent');
  }
  for (const event of events.slice(3)) send(event);
  streams.stop();
  await until(() => page.ended, 'the end of the stream');
  expect(page.text).toBe(eventText('first', {}) + events.join(''));
  expect(page.bytes).toBeLessThan(page.text.length / 2);
});

it.each([
  ['a client that asks for nothing', true, {}],
  ['a client that refuses gzip', true, { 'accept-encoding': 'br, gzip;q=0' }],
  ['a browser, where events have both secrets and text that others choose', false, BROWSER],
])('%s gets events as they are', async (_, isCompressible, headers) => {
  const { send, open } = await setUp({ isCompressible });
  const page = await open(headers);
  send(eventText('change', {}));
  await until(() => page.text === eventText('first', {}) + eventText('change', {}), 'both events');
  expect(page.answer.headers['content-encoding']).toBeUndefined();
});

it.each([
  ['as they are', {}],
  ['compressed', BROWSER],
])('a reader that leaves megabytes unread is cut off, and the others get theirs (%s)', async (_, headers) => {
  const { streams, send, open } = await setUp();
  const [slow, other] = [await open(headers), await open({})];
  await until(() => other.text !== '', 'the first event');
  slow.answer.pause();
  // Nothing of it compresses well.
  const noise = Array.from({ length: 100_000 }, () => Math.random().toString(36)).join('');
  const size = () => [...streams].length;
  const event = eventText('noise', { noise });
  for (let sent = 0; sent < 40 && size() === 2; sent++) {
    const expected = other.text.length + event.length;
    send(event);
    await until(() => other.text.length === expected, 'what the other reads');
  }
  expect(size()).toBe(1);
});

it('a reader who may no longer read is cut off within a second, also without news', async () => {
  let isAllowed = true;
  const { clock, open } = await setUp({ isAllowed: () => isAllowed });
  const page = await open(BROWSER);
  await clock.advance(1_000);
  expect(page.ended).toBe(false);
  isAllowed = false;
  await clock.advance(1_000);
  await until(() => page.ended, 'the end of the stream');
});
