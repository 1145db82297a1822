import { once } from 'node:events';
import { expect, it } from 'vitest';
import type { ByteChannel } from '../../src/agent-protocol/byte-channel.ts';
import { ChannelDuplex } from '../../src/agent-protocol/channel-duplex.ts';

/** A channel that only remembers whether it is paused. */
class FakeChannel implements ByteChannel {
  receiver = { onData() {}, onEnd() {} };
  paused = false;
  write = () => true;
  end() {}
  abort() {}
  pause() {
    this.paused = true;
  }
  resume() {
    this.paused = false;
  }
}

it('leaves what nobody reads in the channel, which joins small pieces, and takes it when it is read', async () => {
  const channel = new FakeChannel();
  const stream = new ChannelDuplex(channel);
  stream.onData(Buffer.from('a'));
  expect(channel.paused).toBe(true);
  stream.resume();
  await once(stream, 'data');
  await new Promise(setImmediate);
  expect(channel.paused).toBe(false);
});
