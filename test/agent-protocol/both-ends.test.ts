import { Duplex, duplexPair } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Channel, ChannelReceiver } from '../../src/agent-protocol/channel.ts';
import { Connection } from '../../src/agent-protocol/connection.ts';
import { LARGEST_WINDOW } from '../../src/agent-protocol/credit-window.ts';
import { HeartbeatEcho, HeartbeatProbe } from '../../src/agent-protocol/heartbeat.ts';
import { AuthAnswer, AuthRequest } from '../../src/agent-protocol/messages.ts';
import { WINDOW } from '../../src/agent-protocol/receive-credit.ts';
import { MemoryBudget } from '../../src/lib/memory-budget.ts';
import { settle, until } from '../support/until.ts';
import { MuxPeer } from './mux-peer.ts';

/** Echoes what it gets; ends and errors go into `events`. */
class Echo implements ChannelReceiver {
  readonly events: string[] = [];

  constructor(readonly channel: Channel) {
    channel.receiver = this;
  }

  onData(payload: Buffer): void {
    if (!this.channel.write(payload)) this.channel.pause();
  }

  onDrain(): void {
    this.channel.resume();
  }

  onEnd(): void {
    this.events.push('end');
    this.channel.end();
  }

  onClosed(error?: Error): void {
    this.events.push(error ? `closed: ${error.message}` : 'closed');
  }
}

class Collector implements ChannelReceiver {
  bytes = Buffer.alloc(0);
  ended = false;
  lost: Error | undefined;

  constructor(readonly channel: Channel) {
    channel.receiver = this;
  }

  onData(payload: Buffer): void {
    this.bytes = Buffer.concat([this.bytes, payload]);
  }

  onEnd(): void {
    this.ended = true;
  }

  onClosed(error?: Error): void {
    this.lost = error;
  }
}

/** An agent's and a gateway's end, joined; each echoes the streams that the other opens. @param openedId of both ends */
function joined(openedId?: { agent: number; gateway: number }) {
  const [near, far] = duplexPair();
  const reasons: string[] = [];
  const end = (socket: typeof near, role: 'agent' | 'gateway') => {
    const accepted: Echo[] = [];
    const user = {
      accept: (channel: Channel) => void accepted.push(new Echo(channel)),
      ended: (reason: Error) => void reasons.push(`${role}: ${reason.message}`),
    };
    const connection = new Connection(socket, user, role, openedId?.[role]);
    if (role === 'gateway') connection.trust(new MemoryBudget(Number.POSITIVE_INFINITY));
    connection.start();
    const open = () => {
      const collector = new Collector(connection.channel());
      connection.open(collector.channel);
      return collector;
    };
    return { connection, accepted, open };
  };
  return { agent: end(near, 'agent'), gateway: end(far, 'gateway'), reasons };
}

describe('an agent’s and a gateway’s end of a connection', () => {
  it('count what the receiver of a stream keeps, also while nothing is sent or read', async () => {
    const { gateway } = joined();
    const budget = new MemoryBudget(1_000_000);
    gateway.connection.trust(budget);
    const { channel } = gateway.open();
    await settle();
    channel.keep(200_000);
    await until(() => budget.held === 200_000, 'the report of what is kept');
  });

  it.each([false, true])(
    'send what was written, and the end (%s), before a stream is aborted when sent',
    async (isEnded) => {
      const { agent, gateway } = joined();
      const collector = gateway.open();
      collector.channel.write(Buffer.from('an upload'));
      await until(() => agent.accepted.length === 1, 'the stream');
      const channel = agent.accepted[0]?.channel as Channel;
      const answer = Buffer.alloc(4 * WINDOW, 'answer');
      await settle();
      channel.write(answer);
      if (isEnded) channel.end();
      channel.abortWhenSent();
      await until(() => collector.lost !== undefined, 'the reset');
      const received = collector.bytes.subarray('an upload'.length);
      expect([received.equals(answer), collector.ended]).toEqual([true, isEnded]);
    },
  );

  it('open streams side by side, and carry megabytes both ways', async () => {
    const { agent, gateway, reasons } = joined();
    const sent = Buffer.alloc(4 * WINDOW, 'abcdefg');
    const both = [agent.open(), gateway.open()];
    expect(both.map(({ channel }) => channel.id)).toEqual([3, 2]);
    for (const { channel } of both) {
      channel.write(sent);
      channel.end();
    }
    await until(() => both.every(({ ended }) => ended), 'both echoes');
    for (const { bytes } of both) expect(bytes.equals(sent)).toBe(true);
    expect([...agent.accepted, ...gateway.accepted].map(({ events }) => events)).toEqual([
      ['end', 'closed'],
      ['end', 'closed'],
    ]);
    expect(reasons).toEqual([]);
  });

  it('use ids again when they have run out, but none of a stream that is still open', async () => {
    const { agent, gateway, reasons } = joined({ agent: 0x7fff_fffd, gateway: 0x7fff_fffc });
    for (const [end, ids] of [
      [agent, [0x7fff_ffff, 3, 5]],
      [gateway, [0x7fff_fffe, 2, 4]],
    ] as const) {
      const streams = ids.map(() => end.open());
      expect(streams.map(({ channel }) => channel.id)).toEqual(ids);
      const [, kept] = streams;
      for (const { channel } of streams) {
        channel.write(Buffer.from('hello'));
        if (channel !== kept?.channel) channel.end();
      }
      await until(
        () => streams.every(({ bytes, ended }, at) => bytes.length === 5 && (ended || at === 1)),
        'the echoes',
      );
    }
    expect(reasons).toEqual([]);
  });

  it('answer each other’s heartbeats', async () => {
    const { agent, gateway } = joined();
    for (const [asking, asked] of [
      [agent, gateway],
      [gateway, agent],
    ] as const) {
      const channel = asking.connection.channel();
      const probe = new HeartbeatProbe(channel);
      channel.receiver = probe;
      asking.connection.open(channel);
      await settle();
      const [opened] = asked.accepted;
      if (opened) opened.channel.receiver = new HeartbeatEcho(opened.channel);
      expect(await probe.ask(5_000)).toBe(true);
    }
  });

  it('ask for an echo each: an earlier heartbeat says nothing about what was sent since', async () => {
    const [near, far] = duplexPair();
    const connection = new Connection(near, { accept() {}, ended() {} });
    const peer = new MuxPeer(far);
    const channel = connection.channel();
    const probe = new HeartbeatProbe(channel);
    channel.receiver = probe;
    connection.start();
    connection.open(channel);
    const answers: string[] = [];
    const ask = (name: string) => void probe.ask(60_000).then((answered) => answers.push(`${name}: ${answered}`));
    ask('first');
    await until(() => peer.received(2).length === 4, 'a heartbeat');
    ask('second');
    await until(() => peer.received(2).length === 8, 'another heartbeat');
    peer.sendData(2, peer.received(2).subarray(0, 4));
    await until(() => answers.length === 1, 'the first answer');
    peer.sendData(2, peer.received(2).subarray(4));
    await until(() => answers.length === 2, 'the second answer');
    expect(answers).toEqual(['first: true', 'second: true']);
    ask('third');
    connection.close(new Error('the end'));
    await until(() => answers.length === 3, 'the third answer');
    expect([answers[2], await probe.ask(60_000)]).toEqual(['third: false', false]);
  });

  it('the agent aborts a stream with a reset, which the gateway’s receiver gets as an error', async () => {
    const { agent, gateway } = joined();
    const stream = gateway.open();
    stream.channel.write(Buffer.from('hello'));
    await until(() => stream.bytes.length > 0, 'the echo');
    agent.accepted[0]?.channel.abort();
    await until(() => stream.channel.closed, 'the reset');
    expect(stream.lost?.message).toBe('stream reset by the peer');
    expect(stream.ended).toBe(false);
  });

  it('the agent sends no frames without effect: its peer delays nothing', async () => {
    const [near, far] = duplexPair();
    const user = { accept: (channel: Channel) => void new Collector(channel), ended() {} };
    new Connection(near, user, 'agent').start();
    const gateway = new MuxPeer(far);
    gateway.sendData(2, 'hello', { syn: true });
    await settle();
    expect(gateway.chunks).toEqual([]);
  });

  it.each([
    ['with an id of the agent’s', (gateway: MuxPeer) => gateway.sendData(5, 'x', { syn: true })],
    [
      'with more data than its window',
      (gateway: MuxPeer) => gateway.sendData(2, Buffer.alloc(WINDOW + 1), { syn: true }),
    ],
  ])('the agent ends a connection on which the gateway opens a stream %s', async (_what, misbehave) => {
    const [near, far] = duplexPair();
    const reasons: Error[] = [];
    const user = {
      accept: (channel: Channel) => void new Collector(channel),
      ended: (why: Error) => reasons.push(why),
    };
    new Connection(near, user, 'agent').start();
    misbehave(new MuxPeer(far));
    await until(() => reasons.length > 0, 'the end');
    expect(reasons[0]?.name).toBe('ProtocolViolation');
  });

  it('the agent accepts as many streams as a gateway opens, and their resets', async () => {
    const { agent, gateway, reasons } = joined();
    for (let round = 0; round < 1000; round++) {
      const { channel } = gateway.open();
      await new Promise(setImmediate);
      channel.reset(6);
    }
    await settle();
    expect(reasons).toEqual([]);
    expect(agent.accepted).toHaveLength(1000);
  });
});

/** Two ends of a path on which bytes take a while; `flying` is how many are on it, at most. */
function distant(ms: number): { near: Duplex; far: Duplex; flying: () => number } {
  let [now, most] = [0, 0];
  const end = (other: () => Duplex): Duplex =>
    new Duplex({
      read() {},
      write(chunk: Buffer, _encoding, done) {
        now += chunk.length;
        most = Math.max(most, now);
        setTimeout(() => {
          now -= chunk.length;
          other().push(chunk);
        }, ms);
        done();
      },
    });
  const near: Duplex = end(() => far);
  const far: Duplex = end(() => near);
  return { near, far, flying: () => most };
}

describe('peers that support larger windows', () => {
  /** Sends bulk from the agent to the gateway. */
  async function flyingOf(budget: MemoryBudget, mebibytes: number, paused = false): Promise<number> {
    const { near, far, flying } = distant(20);
    const user = { accept() {}, ended() {} };
    const agent = new Connection(near, user, 'agent');
    const received = new Promise<Collector>((resolve) => {
      const accept = (channel: Channel) => {
        const collector = new Collector(channel);
        collector.onData = (payload) => {
          count += payload.length;
          if (paused && count > WINDOW) channel.pause();
        };
        resolve(collector);
      };
      let count = 0;
      const gateway = new Connection(far, { accept, ended() {} });
      gateway.trust(budget);
      gateway.roundTrip.add(40, performance.now());
      gateway.extend(LARGEST_WINDOW);
      gateway.start();
    });
    agent.extend(LARGEST_WINDOW);
    agent.start();
    const channel = agent.channel();
    let left = mebibytes;
    const more = () => {
      while (left > 0 && channel.write(Buffer.alloc(1_048_576))) left -= 1;
      if (left-- <= 0) channel.end();
    };
    channel.receiver = { onData() {}, onEnd() {}, onDrain: more };
    agent.open(channel);
    more();
    const collector = await received;
    if (paused) await new Promise((resolve) => setTimeout(resolve, 500));
    else await until(() => collector.ended, 'all bytes');
    return flying();
  }

  const budgetOf = (mebibytes: number, whole?: MemoryBudget) => new MemoryBudget(mebibytes * 1_048_576, whole);

  it('have megabytes on their way, unlike others', async () => {
    expect(await flyingOf(budgetOf(128), 12)).toBeGreaterThan(6 * WINDOW);
  });

  it('leave less room to the other sessions of a gateway while they may send more', async () => {
    const whole = budgetOf(128);
    const other = budgetOf(128, whole);
    const before = other.room;
    let least = before;
    const watch = setInterval(() => {
      least = Math.min(least, other.room);
    }, 1);
    await flyingOf(budgetOf(128, whole), 12);
    clearInterval(watch);
    expect(before - least).toBeGreaterThan(2 * WINDOW);
    expect(other.room).toBe(before);
  });

  it('have no more on their way than memory allows, or than the receiver reads', async () => {
    expect(await flyingOf(budgetOf(4), 4)).toBeLessThan(4 * WINDOW);
    expect(await flyingOf(budgetOf(128), 12, true)).toBeLessThan(18 * WINDOW);
  });

  it('take anything but a size for no support', () => {
    fc.assert(
      fc.property(fc.oneof(fc.anything(), fc.integer(), fc.double()), (value) => {
        const extra = { AuthToken: 'x', StreamWindow: value };
        const request = AuthRequest.parse({ Version: ['3'], ClientId: '', Extra: extra }).Extra.streamwindow;
        const answer = AuthAnswer.parse({ ClientId: 'x', Extra: extra }).Extra.StreamWindow;
        const [near] = duplexPair();
        const connection = new Connection(near, { accept() {}, ended() {} });
        for (const window of [request, answer]) {
          connection.extend(window);
          expect(Number.isSafeInteger(connection.largestWindow)).toBe(true);
          expect(connection.largestWindow).toBeGreaterThanOrEqual(WINDOW);
          expect(connection.largestWindow).toBeLessThanOrEqual(LARGEST_WINDOW);
        }
      }),
    );
    expect(AuthRequest.parse({ Version: ['3'], ClientId: '', Extra: {} }).Extra.streamwindow).toBe(0);
    for (const Extra of [undefined, {}, null, 7, []]) {
      expect(AuthAnswer.parse({ ClientId: 'x', Extra }).Extra).toEqual({
        StreamWindow: 0,
        SecondLink: false,
        Links: 0,
        Ticket: '',
        RequestFeed: false,
        UpstreamStates: false,
        TimesAway: false,
        HeartbeatPace: false,
        DataBudgets: false,
        Metered: null,
        Node: '',
      });
    }
  });

  it('take anything but true for no second connection, and keep the window', () => {
    fc.assert(
      fc.property(fc.anything(), (value) => {
        const { StreamWindow, SecondLink } = AuthAnswer.parse({
          ClientId: 'x',
          Extra: { StreamWindow: 1_000_000, SecondLink: value },
        }).Extra;
        expect([StreamWindow, SecondLink]).toEqual([1_000_000, value === true]);
      }),
    );
  });
});
