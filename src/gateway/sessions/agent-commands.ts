import type { ChannelReceiver } from '../../agent-protocol/channel.ts';
import type { Connection } from '../../agent-protocol/connection.ts';
import { CommandAnswer, StreamType, streamPrefix } from '../../agent-protocol/messages.ts';
import { RpcCall } from '../../agent-protocol/rpc.ts';
import { withDeadline } from '../../lib/time/deadline.ts';

const ANSWER_MS = 10_000;

/** Sends commands to an agent. Their formats were measured with `@ngrok/ngrok` 1.7.0. */
export class AgentCommands {
  #saysRefused = false;

  /** @param onLost called when its connection has ended before the agent could read that an endpoint was stopped */
  constructor(
    private readonly connection: () => Connection,
    private readonly onLost: () => void,
  ) {}

  /**
   * Resolves when the agent has called its handler, which decides what happens. @throws {Error} when it has none or does not
   * answer within 10 s; so do `restart` and `update`
   */
  stop(): Promise<void> {
    return this.#call(StreamType.stop, {});
  }

  restart(): Promise<void> {
    return this.#call(StreamType.restart, {});
  }

  update(): Promise<void> {
    return this.#call(StreamType.update, { Version: '', PermitMajorVersion: false });
  }

  /** @param metered null: as the device says itself */
  setLink(metered: boolean | null): Promise<void> {
    return this.#call(StreamType.linkKind, { Metered: metered });
  }

  /** Take the endpoint offline first: SDKs do not answer, and ignore the command after a reconnect. */
  stopTunnel(id: string, message: string, code: string): void {
    const connection = this.connection();
    const channel = connection.channel();
    const onClosed = () => connection.hasEnded && this.onLost();
    const receiver: ChannelReceiver = { onData() {}, onEnd: () => channel.end(), onClosed };
    channel.receiver = receiver;
    channel.write(commandFrame(StreamType.stopTunnel, { Id: id, Message: message, ErrorCode: code }));
    connection.open(channel);
  }

  /** Says that the response of an endpoint's upstream was refused. While the agent has yet to read one, others are left out. */
  refusedAnswer(id: string, reason: string): void {
    if (this.#saysRefused) return;
    this.#saysRefused = true;
    const isOver = () => {
      this.#saysRefused = false;
    };
    this.#call(StreamType.refusedAnswer, { Id: id, Reason: reason }).then(isOver, isOver);
  }

  async #call(type: number, body: object): Promise<void> {
    const connection = this.connection();
    const channel = connection.channel();
    channel.write(commandFrame(type, body));
    const answer = new Promise<unknown>((resolve, reject) => {
      channel.receiver = new RpcCall(channel, { resolve, reject });
    });
    connection.open(channel);
    try {
      const { Error: refused } = CommandAnswer.parse(await withDeadline(answer, 'the command to the agent', ANSWER_MS));
      if (refused) throw new Error(refused);
    } finally {
      channel.end();
    }
  }
}

/** Type and body in one frame: while a body arrives in parts, the SDK accepts no other stream. */
function commandFrame(type: number, body: object): Buffer {
  return Buffer.concat([streamPrefix(type), Buffer.from(JSON.stringify(body))]);
}
