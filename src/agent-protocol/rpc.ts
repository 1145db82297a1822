import type { Channel, ChannelReceiver } from './channel.ts';

/**
 * Answers a request with an error on purpose; any other exception is a bug. The answer's `Error` member carries the message,
 * and SDKs take the code from a line of its own that begins with `ERR_NGROK_` (observed with `@ngrok/ngrok` 1.7.0).
 */
export class RpcError extends Error {
  /** Seconds after which a retry may work; null: the caller decides. */
  readonly retryAfterS: number | null;

  constructor(
    readonly code: string,
    message: string,
    { retryAfterS = null, ...options }: ErrorOptions & { retryAfterS?: number | null } = {},
  ) {
    super(message, options);
    this.name = 'RpcError';
    this.retryAfterS = retryAfterS;
  }
}

function rpcErrorText({ message, code }: RpcError): string {
  return `${message}\n\n${code}`;
}

/** Reads an `Error` member, as SDKs do: lines that begin with `ERR_NGROK_` are codes, of which the last one counts. */
export function parseRpcError(text: string): { code: string | null; message: string } {
  const lines = text.split(/\r?\n/).filter((line) => line !== '');
  const isCode = (line: string) => line.startsWith('ERR_NGROK_');
  return {
    code: lines.findLast(isCode) ?? null,
    message: lines.filter((line) => !isCode(line)).join('\n'),
  };
}

const PREFIX_LENGTH = 4;

/** Reads the four-byte type that opens every stream, then passes it on. SDKs send the type alone in the first frame. */
export class TypedStream implements ChannelReceiver {
  #type = 0;
  #seen = 0;

  constructor(
    private readonly channel: Channel,
    private readonly serve: (type: number, channel: Channel) => ChannelReceiver,
  ) {}

  onData(payload: Buffer): void {
    let at = 0;
    while (at < payload.length && this.#seen < PREFIX_LENGTH) {
      this.#type = (this.#type << 8) | (payload[at++] as number);
      this.#seen += 1;
    }
    if (this.#seen < PREFIX_LENGTH) return;
    const receiver = this.serve(this.#type >>> 0, this.channel);
    this.channel.receiver = receiver;
    if (at < payload.length) receiver.onData(payload.subarray(at));
  }

  onEnd(): void {
    this.channel.end();
  }
}

// Conventions measured with `@ngrok/ngrok` 1.7.0: one JSON object each way, the caller does not half-close, and it reads
// the answer until FIN. Its FIN afterwards says that it has processed the answer.

export const BODY_LIMITS: JsonLimits = { bytes: 1_048_576, values: 8192 };

export interface RpcAnswer {
  body: object;
  /** Called when the caller has processed the answer. */
  consumed?: () => void;
}

export interface RpcRequest {
  size: number;
  /** Parses the body. Large ones take milliseconds. */
  parse(): unknown;
}

/** Instead of an answer: what the stream carries from now on. */
export interface RpcFeed {
  receiver: ChannelReceiver;
}

type RpcHandler = (request: RpcRequest) => Promise<RpcAnswer | RpcFeed>;

/**
 * Answers the request on an RPC stream that the peer opened: one JSON object in, one out, then FIN. It always answers:
 * SDKs wait without a timeout, and hold back all their other RPCs meanwhile.
 */
export class RpcResponder implements ChannelReceiver {
  readonly #request: JsonScanner;
  #answering = false;
  #peerDone = false;
  #consumed: (() => void) | undefined;

  constructor(
    private readonly channel: Channel,
    private readonly handler: RpcHandler,
    private readonly onBug: (error: unknown) => void,
    limits = BODY_LIMITS,
  ) {
    this.#request = new JsonScanner(limits);
  }

  onData(payload: Buffer): void {
    if (this.#answering) return;
    this.channel.keep(payload.length);
    try {
      if (!this.#request.push(payload)) return;
    } catch (error) {
      this.#refuse(notJson(error));
      return;
    }
    void this.#answer(this.handler(this.#whole()));
  }

  /** The caller's FIN: before an answer, the request is incomplete; afterwards, it has processed the answer. */
  onEnd(): void {
    if (!this.#answering) this.#refuse(new RpcError('ERR_NGROK_301', 'the request is incomplete'));
    this.onClosed();
  }

  onClosed(): void {
    this.#peerDone = true;
    this.#consume();
  }

  /** The handler decides when: what cannot be parsed is answered no sooner than what can. */
  #refuse(error: RpcError): void {
    const parse = () => {
      throw error;
    };
    void this.#answer(this.handler({ size: this.#request.length, parse }));
  }

  #whole(): RpcRequest {
    const request = this.#request;
    const parse = () => {
      try {
        return request.parse();
      } catch (error) {
        throw notJson(error);
      }
    };
    return { size: request.length, parse };
  }

  async #answer(answer: Promise<RpcAnswer | RpcFeed>): Promise<void> {
    this.#answering = true;
    this.channel.answersSoon();
    let body: object;
    try {
      const given = await answer;
      if ('receiver' in given) {
        this.#become(given.receiver);
        return;
      }
      this.#consumed = given.consumed;
      body = given.body;
    } catch (error) {
      const RetryAfterS = error instanceof RpcError ? error.retryAfterS : null;
      body = { Error: this.#errorText(error), ...(RetryAfterS !== null && { RetryAfterS }) };
    }
    this.channel.write(Buffer.from(JSON.stringify(body)));
    this.channel.end();
    if (this.#peerDone) this.#consume();
  }

  #become(receiver: ChannelReceiver): void {
    this.channel.receiver = receiver;
    if (this.channel.closed) receiver.onClosed?.();
    else if (this.#peerDone) receiver.onEnd();
  }

  #errorText(error: unknown): string {
    if (error instanceof RpcError) return rpcErrorText(error);
    this.onBug(error);
    return rpcErrorText(new RpcError('ERR_NGROK_741', 'internal error; see the log of the gateway'));
  }

  #consume(): void {
    const consumed = this.#consumed;
    this.#consumed = undefined;
    consumed?.();
  }
}

function notJson(cause: unknown): RpcError {
  return new RpcError('ERR_NGROK_301', 'the request is not a JSON object', { cause });
}

/** Reads the answer to a request of ours: one JSON object. Rejects without one. */
export class RpcCall implements ChannelReceiver {
  readonly #answer = new JsonScanner(BODY_LIMITS);

  constructor(
    private readonly channel: Channel,
    private readonly settle: { resolve: (body: unknown) => void; reject: (error: Error) => void },
  ) {}

  onData(payload: Buffer): void {
    this.channel.keep(payload.length);
    try {
      if (this.#answer.push(payload)) this.settle.resolve(this.#answer.parse());
    } catch (error) {
      this.settle.reject(new Error('the answer is not a JSON object', { cause: error }));
    }
  }

  onEnd(): void {
    this.settle.reject(new Error('the peer ended the call without an answer'));
    this.channel.end();
  }

  onClosed(error?: Error): void {
    this.settle.reject(error ?? new Error('the call was closed'));
  }
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const COMMA = 0x2c;

/** Messages have a few levels. JSON.stringify() overflows the stack at some thousands, which would end the process. */
const MAX_DEPTH = 64;

export interface JsonLimits {
  bytes: number;
  /** Members and elements on all levels. Parsing and validating them takes far longer than reading their bytes. */
  values: number;
}

/**
 * Finds the end of a JSON object that arrives in pieces: SDKs do not half-close the stream after a request (measured
 * with `@ngrok/ngrok` 1.7.0). Each byte is scanned once, so a body sent byte by byte costs no more than one sent whole.
 */
export class JsonScanner {
  #body = Buffer.alloc(0);
  #length = 0;
  #depth = 0;
  #values = 1;
  #inString = false;
  #escaped = false;

  constructor(private readonly limits: JsonLimits) {}

  /**
   * @returns true once the object is complete; the rest of the piece is ignored
   * @throws {SyntaxError} when the bytes cannot become an object within the limits
   */
  push(piece: Buffer): boolean {
    const end = this.#endIn(piece);
    this.#keep(end === null ? piece : piece.subarray(0, end));
    return end !== null;
  }

  get length(): number {
    return this.#length;
  }

  parse(): unknown {
    return JSON.parse(this.#body.toString('utf8', 0, this.#length));
  }

  /** Where the object ends in the piece; null when it continues. Local variables keep the loop fast. */
  #endIn(piece: Buffer): number | null {
    let [depth, inString, escaped] = [this.#depth, this.#inString, this.#escaped];
    let end: number | null = null;
    for (let at = 0; at < piece.length && end === null; at++) {
      const byte = piece[at] as number;
      if (inString) {
        if (escaped) escaped = false;
        else if (byte === BACKSLASH) escaped = true;
        else if (byte === QUOTE) inString = false;
      } else if (byte === OPEN_BRACE || (byte === OPEN_BRACKET && depth > 0)) {
        depth += 1;
        if (depth > MAX_DEPTH) throw new SyntaxError('the body is nested too deeply');
      } else if (depth === 0 && byte > 0x20) {
        throw new SyntaxError('not a JSON object');
      } else if (byte === QUOTE) {
        inString = true;
      } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        depth -= 1;
        if (depth === 0) end = at + 1;
      } else if (byte === COMMA) {
        this.#values += 1;
        if (this.#values > this.limits.values) throw new SyntaxError('the body has too many values');
      }
    }
    this.#depth = depth;
    this.#inString = inString;
    this.#escaped = escaped;
    return end;
  }

  #keep(piece: Buffer): void {
    const length = this.#length + piece.length;
    if (length > this.limits.bytes) throw new SyntaxError('the body is too long');
    if (length > this.#body.length) {
      const larger = Buffer.allocUnsafe(Math.max(length, 2 * this.#length));
      this.#body.copy(larger, 0, 0, this.#length);
      this.#body = larger;
    }
    piece.copy(this.#body, this.#length);
    this.#length = length;
  }
}
