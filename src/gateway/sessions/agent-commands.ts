import type { ChannelReceiver } from '../../agent-protocol/channel.ts';
import type { Connection } from '../../agent-protocol/connection.ts';
import { CommandAnswer, StreamType, streamPrefix } from '../../agent-protocol/messages.ts';
import { RpcCall } from '../../agent-protocol/rpc.ts';
import { withDeadline } from '../../lib/deadline.ts';

const ANSWER_MS = 10_000;

/** What the gateway may ask of an agent. */
export class AgentCommands {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Asks the agent to stop. Resolves once its handler was called; what it does then is its own business.
   *
   * @throws {Error} when the agent has no handler, or does not answer within 10 s; so do the other two
   */
  stop(): Promise<void> {
    return this.#call(StreamType.stop, {});
  }

  /** Asks the agent to restart. */
  restart(): Promise<void> {
    return this.#call(StreamType.restart, {});
  }

  /** Asks the agent to update itself. */
  update(version: string, permitMajorVersion: boolean): Promise<void> {
    return this.#call(StreamType.update, { Version: version, PermitMajorVersion: permitMajorVersion });
  }

  /**
   * Tells the agent that an endpoint was ended. No SDK answers, and one that has reconnected ignores it: the endpoint
   * has to be taken offline first.
   */
  stopTunnel(id: string, message: string, code: string): void {
    const channel = this.#connection.channel();
    const receiver: ChannelReceiver = { onData() {}, onEnd: () => channel.end() };
    channel.receiver = receiver;
    channel.write(commandFrame(StreamType.stopTunnel, { Id: id, Message: message, ErrorCode: code }));
    this.#connection.open(channel);
  }

  async #call(type: number, body: object): Promise<void> {
    const channel = this.#connection.channel();
    channel.write(commandFrame(type, body));
    const answer = new Promise<unknown>((resolve, reject) => {
      channel.receiver = new RpcCall(channel, { resolve, reject });
    });
    this.#connection.open(channel);
    try {
      const { Error: refused } = CommandAnswer.parse(await withDeadline(answer, 'the command to the agent', ANSWER_MS));
      if (refused) throw new Error(refused);
    } finally {
      channel.end();
    }
  }
}

/** Type and body in one frame: the SDK's accept loop waits for a body that comes in parts, and accepts nothing else. */
function commandFrame(type: number, body: object): Buffer {
  return Buffer.concat([streamPrefix(type), Buffer.from(JSON.stringify(body))]);
}
