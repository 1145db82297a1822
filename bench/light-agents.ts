/**
 * Agents that keep to the protocol and do little else, as many as a process holds. They come back as agents of this project do.
 * Arguments: JSON, see {@link LightAgents}. Prints {online, sessions, back, failed} four times a second: how many have a session with
 * their endpoint, and how many such sessions there were; since the last line, the numbers of those that have got one, and how many
 * attempts have failed, by reason.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:tls';
import type { Channel, ChannelReceiver } from '../src/agent-protocol/channel.ts';
import { Connection } from '../src/agent-protocol/connection.ts';
import { HeartbeatEcho, HeartbeatProbe } from '../src/agent-protocol/heartbeat.ts';
import { StreamType, streamPrefix } from '../src/agent-protocol/messages.ts';
import { RpcCall, TypedStream } from '../src/agent-protocol/rpc.ts';
import { Limiter } from '../src/lib/limiter.ts';
import { backoffDelay } from '../src/lib/time/backoff.ts';
import { withDeadline } from '../src/lib/time/deadline.ts';

export interface LightAgents {
  address: string;
  caFile: string;
  /** Agents take turns with them. */
  authtokens: readonly string[];
  count: number;
  /** The number of its first agent, so that the endpoints of several processes differ; left out: 0. */
  first?: number;
}

const { address, caFile, authtokens, count, first = 0 } = JSON.parse(process.argv[2] ?? '{}') as LightAgents;
const [host = '', port = ''] = address.split(':');
const ca = readFileSync(caFile);

/** As those of the native connector, once they are as far apart as they get. */
const HEARTBEAT_MS = 19_000;
const HEARTBEAT = { HeartbeatInterval: HEARTBEAT_MS * 1e6, HeartbeatTolerance: 10_000 * 1e6 };
/** As the native connector's: within half a second after a loss, then with backoff. */
const FIRST = { baseMs: 500, maxMs: 500 };
const BROKEN_OFF = { baseMs: 500, maxMs: 5_000 };
const DEADLINE_MS = 20_000;
/** A source address of loopback has 28,000 ports. */
const ADDRESSES = 8;
/** Agents that connect for the first time at once; and attempts afterwards, which share this process, unlike those of real agents. */
const AT_FIRST = 32;
const AT_ONCE = 400;
const ANSWER = Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');

const attempts = new Limiter(AT_ONCE);
let online = 0;
let sessions = 0;
let back: number[] = [];
let failed: Record<string, number> = {};

const wait = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Answers each request on a stream of a client, whose head ends in it. */
class Upstream implements ChannelReceiver {
  constructor(private readonly channel: Channel) {}

  onData(bytes: Buffer): void {
    if (bytes.includes('\r\n\r\n')) this.channel.write(ANSWER);
  }

  onEnd(): void {
    this.channel.end();
  }
}

interface Online {
  /** Settles when its connection has ended. */
  lost: Promise<unknown>;
}

class LightAgent {
  #clientId = '';
  #ticket: Buffer | undefined;
  #beat: NodeJS.Timeout | undefined;

  constructor(private readonly number: number) {}

  /** Keeps it online, from its first session on; resolves when it has that. */
  async start(): Promise<void> {
    let session = await this.#untilOnline();
    void (async () => {
      for (;;) {
        await session.lost;
        online -= 1;
        await wait(backoffDelay(0, FIRST));
        session = await this.#untilOnline();
      }
    })();
  }

  async #untilOnline(): Promise<Online> {
    for (let failures = 0; ; failures += 1) {
      try {
        return await attempts.run(() => this.#connect());
      } catch (error) {
        const { message } = error as Error;
        failed[message] = (failed[message] ?? 0) + 1;
        await wait(backoffDelay(failures, BROKEN_OFF));
      }
    }
  }

  async #connect(): Promise<Online> {
    const localAddress = `127.0.0.${2 + (this.number % ADDRESSES)}`;
    const to = { host, port: Number(port), localAddress, ca };
    const socket = connect({ ...to, ...(this.#ticket && { session: this.#ticket }) });
    socket
      .on('error', () => {})
      .on('session', (ticket) => {
        this.#ticket = ticket;
      });
    const lost = new Promise((resolve) => socket.once('close', resolve));
    try {
      await withDeadline(this.#logIn(socket, lost), 'connecting', DEADLINE_MS);
    } catch (error) {
      socket.destroy();
      throw error;
    }
    online += 1;
    sessions += 1;
    back.push(this.number);
    return { lost };
  }

  async #logIn(socket: ReturnType<typeof connect>, lost: Promise<unknown>): Promise<void> {
    const isLost = lost.then(() => {
      throw new Error('connection lost');
    });
    isLost.catch(() => {});
    await Promise.race([once(socket, 'secureConnect'), isLost]);
    const connection = new Connection(
      socket,
      {
        accept: (channel) => {
          channel.receiver = new TypedStream(channel, (type) =>
            type === StreamType.heartbeat ? new HeartbeatEcho(channel) : new Upstream(channel),
          );
        },
        ended: () => clearInterval(this.#beat),
      },
      'agent',
    );
    connection.start();
    const channel = connection.channel();
    channel.write(streamPrefix(StreamType.heartbeat));
    const probe = new HeartbeatProbe(channel);
    channel.receiver = probe;
    connection.open(channel);
    const beat = () => void probe.ask(HEARTBEAT_MS);
    beat();
    const Extra = { ...HEARTBEAT, AuthToken: authtokens[this.number % authtokens.length], ShortAnswers: true };
    const auth = { Version: ['3', '2'], ClientId: this.#clientId, Extra };
    this.#clientId = (await call(connection, StreamType.auth, auth)).ClientId ?? '';
    const Opts = { Domain: `light-${this.number}.localhost` };
    await call(connection, StreamType.bind, { Proto: 'http', ForwardsTo: 'http://127.0.0.1:9', Opts, Extra: {} });
    this.#beat = setInterval(beat, HEARTBEAT_MS);
  }
}

/** @throws Error when the gateway refuses */
async function call(connection: Connection, type: number, body: object): Promise<{ ClientId?: string }> {
  const channel = connection.channel();
  channel.write(Buffer.concat([streamPrefix(type), Buffer.from(JSON.stringify(body))]));
  const answer = await new Promise<unknown>((resolve, reject) => {
    channel.receiver = new RpcCall(channel, { resolve, reject });
    connection.open(channel);
  });
  const { Error: refusal, ...rest } = answer as { Error?: string; ClientId?: string };
  if (refusal) throw new Error(refusal);
  return rest;
}

const limiter = new Limiter(AT_FIRST);
for (let number = first; number < first + count; number += 1) void limiter.run(() => new LightAgent(number).start());
console.log(JSON.stringify({ online, sessions, back, failed }));
setInterval(() => {
  console.log(JSON.stringify({ online, sessions, back, failed }));
  back = [];
  failed = {};
}, 250);
