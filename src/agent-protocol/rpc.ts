import type { Channel, ChannelReceiver } from './channel.ts';
import { JsonScanner } from './json-scanner.ts';
import { RpcError, rpcErrorText } from './rpc-error.ts';

/** Longest request or response, in bytes. */
const MAX_BODY = 1_048_576;

/** What the gateway answers an agent's request with. */
export interface RpcAnswer {
  body: object;
  /** Called when the agent has processed the answer. */
  consumed?: () => void;
}

/** @param size bytes that the body came in */
export type RpcHandler = (body: unknown, size: number) => Promise<RpcAnswer>;

/**
 * Serves one RPC stream opened by the agent: one JSON object in, one out, then FIN. There is an answer in every
 * case, for the SDK waits without a timeout and with all its other RPCs held back.
 */
export class RpcResponder implements ChannelReceiver {
  readonly #channel: Channel;
  readonly #handler: RpcHandler;
  readonly #onBug: (error: unknown) => void;
  readonly #request: JsonScanner;
  #answering = false;
  #agentDone = false;
  #consumed: (() => void) | undefined;

  /** @param onBug told of every error that is not a {@link RpcError} */
  constructor(channel: Channel, handler: RpcHandler, onBug: (error: unknown) => void, maxBody = MAX_BODY) {
    this.#channel = channel;
    this.#handler = handler;
    this.#onBug = onBug;
    this.#request = new JsonScanner(maxBody);
  }

  onData(payload: Buffer): void {
    if (this.#answering) return;
    try {
      if (this.#request.push(payload)) this.#answer(this.#handler(this.#request.parse(), this.#request.length));
    } catch (error) {
      this.#answer(Promise.reject(new RpcError('ERR_NGROK_301', 'the request is not a JSON object', { cause: error })));
    }
  }

  /** The agent's FIN before an answer is the end of an unfinished request, after it the sign that it was read. */
  onEnd(): void {
    if (!this.#answering) {
      this.#answer(Promise.reject(new RpcError('ERR_NGROK_301', 'the request is incomplete')));
    }
    this.onClosed();
  }

  onClosed(): void {
    this.#agentDone = true;
    this.#consume();
  }

  async #answer(answer: Promise<RpcAnswer>): Promise<void> {
    this.#answering = true;
    let body: object;
    try {
      const { body: success, consumed } = await answer;
      this.#consumed = consumed;
      body = success;
    } catch (error) {
      body = { Error: this.#errorText(error) };
    }
    this.#channel.write(Buffer.from(JSON.stringify(body)));
    this.#channel.end();
    if (this.#agentDone) this.#consume();
  }

  #errorText(error: unknown): string {
    if (error instanceof RpcError) return rpcErrorText(error);
    this.#onBug(error);
    return rpcErrorText(new RpcError('ERR_NGROK_741', 'internal error of the gateway'));
  }

  #consume(): void {
    const consumed = this.#consumed;
    this.#consumed = undefined;
    consumed?.();
  }
}

/**
 * Calls the agent: one JSON object out, one in. Rejects when the stream ends before there is an answer, and when the
 * answer is an error.
 */
export class RpcCall implements ChannelReceiver {
  readonly #channel: Channel;
  readonly #answer = new JsonScanner(MAX_BODY);
  readonly #settle: { resolve: (body: unknown) => void; reject: (error: Error) => void };

  constructor(channel: Channel, settle: { resolve: (body: unknown) => void; reject: (error: Error) => void }) {
    this.#channel = channel;
    this.#settle = settle;
  }

  onData(payload: Buffer): void {
    try {
      if (this.#answer.push(payload)) this.#settle.resolve(this.#answer.parse());
    } catch (error) {
      this.#settle.reject(new Error('the answer of the agent is not a JSON object', { cause: error }));
    }
  }

  onEnd(): void {
    this.#settle.reject(new Error('the agent ended the call without an answer'));
    this.#channel.end();
  }

  onClosed(error?: Error): void {
    this.#settle.reject(error ?? new Error('the call was closed'));
  }
}
