import { type Duplex, duplexPair } from 'node:stream';
import { expect, it, onTestFinished, vi } from 'vitest';
import { pipeBoth } from '../../../../src/gateway/edge/connections/open-connections.ts';
import { settle } from '../../../support/until.ts';

/** A client and an upstream that are piped; the far sides are theirs. */
async function setUp() {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const [client, clientSide] = duplexPair();
  const [upstream, upstreamSide] = duplexPair();
  for (const side of [client, clientSide, upstream, upstreamSide] as Duplex[]) side.on('error', () => {}).resume();
  pipeBoth(clientSide, upstreamSide);
  const after = async (ms: number) => {
    vi.advanceTimersByTime(ms);
    await settle();
    return upstreamSide.destroyed;
  };
  return { client, clientSide, upstream, after };
}

it('an upstream that is silent after its client has ended its side is not waited for', async () => {
  const { client, upstream, after } = await setUp();
  client.end();
  await settle();
  expect(await after(299_000)).toBe(false);
  upstream.write('still at it');
  await settle();
  expect([await after(299_000), await after(1_000)]).toEqual([false, true]);
});

it('an upstream that does not end its side of a connection that its client has closed is not waited for', async () => {
  const { client, clientSide, after } = await setUp();
  client.end();
  // TLS ends both directions.
  clientSide.end();
  await settle();
  expect([await after(29_000), await after(1_000)]).toEqual([false, true]);
});
