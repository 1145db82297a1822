import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { ByteBlocks } from '../byte-blocks.ts';
import type { Reservation } from '../memory-budget.ts';

/** The body of a response is longer than it may be. */
export class ResponseTooLong extends Error {
  constructor(maxBytes: number) {
    super(`the response is longer than ${maxBytes} bytes`);
    this.name = 'ResponseTooLong';
  }
}

/** What the body of a response may take. */
export interface ResponseLimits {
  readonly maxBytes: number;
  /** Counts the body as it arrives; omitted: nobody does. */
  readonly held?: Reservation;
  /** Whether the response counts once its head is there, however its body goes on. */
  readonly statusSuffices?: boolean;
}

/** Collects the body of a response, whose pieces can be as small as a byte. */
export class CollectedBody {
  readonly #blocks = new ByteBlocks();

  constructor(private readonly limits: ResponseLimits) {}

  /**
   * @throws {ResponseTooLong}
   * @throws {NoRoom}
   */
  add(piece: Buffer): void {
    const { maxBytes, held } = this.limits;
    const before = this.#blocks.held;
    this.#blocks.add(piece);
    if (this.#blocks.length > maxBytes) throw new ResponseTooLong(maxBytes);
    held?.require(this.#blocks.held - before);
  }

  whole(): Buffer {
    return this.#blocks.joined();
  }
}

/** Interim responses (1xx) to one request: hints, or signs of progress. */
const MAX_INTERIM = 10;
/** Bytes of a response besides its content: heads, trailers, and what delimits chunks. */
const MAX_FRAMING = 65_536;
/** Bytes of framing that a read counts for. TLS has as many for each of its records, which may have one byte of content. */
const READ_FRAMING = 16;

/** How long the connection waits to be used again for a body that nobody needs. */
const UNNEEDED_BODY_MS = 250;

/** Measured milliseconds of the event loop: for a read, for a piece of a body, and for an interim response. */
const READ_MS = 0.02;
const PIECE_MS = 0.003;
const INTERIM_MS = 0.02;

export interface WholeResponse {
  /** Its head. */
  readonly head: IncomingMessage;
  readonly body: Buffer;
  /** IP address of who has answered. */
  readonly address: string;
}

/**
 * Reads the response of a server that may be anybody's. What the server may make this process do is limited in all parts of a
 * response; its time is limited by the signal of the request.
 *
 * @param request as it was made, before its `response` event
 * @param limits of the body
 * @param onWork called at the end with the milliseconds of processor time that the response took, without the connection's
 * @throws {ResponseTooLong}
 * @throws {NoRoom}
 * @throws Error when the connection fails, or the response has too many interim responses or too much besides its content
 */
export function readResponse(
  request: ClientRequest,
  limits: ResponseLimits,
  onWork: (ms: number) => void = () => {},
): Promise<WholeResponse> {
  let fail: (error: Error) => void = () => {};
  const reader = new ResponseReader(limits, (error) => fail(error));
  let connection: Socket | undefined;
  let unread: IncomingMessage | undefined;
  let slow: NodeJS.Timeout | undefined;
  // The parser had them before.
  const read = (bytes: Buffer) => reader.read(bytes.length, unread?.readableLength ?? 0);
  const whole = new Promise<WholeResponse>((resolve, reject) => {
    let failed = reject;
    fail = (error) => {
      failed(error);
      request.destroy();
    };
    request
      .on('error', (error) => failed(error))
      .once('socket', (socket) => {
        connection = socket.on('data', read);
      })
      .on('information', () => reader.interim())
      .on('response', (head) => {
        unread = head;
        // A connection that is kept no longer belongs to a response that was read.
        const address = head.socket.remoteAddress ?? '';
        const finished = () => resolve({ head, body: reader.body, address });
        if (limits.statusSuffices) {
          failed = finished;
          slow = setTimeout(() => fail(new Error('the body is slow')), UNNEEDED_BODY_MS);
        }
        head
          .on('error', (error) => failed(error))
          .on('data', (piece: Buffer) => reader.piece(piece))
          .on('end', finished);
      })
      // Nothing else says so when the connection ends in an orderly way before the response.
      .once('close', () => failed(new Error('the server closed the connection')));
  });
  return whole.finally(() => {
    clearTimeout(slow);
    connection?.off('data', read);
    onWork(reader.workMs);
  });
}

/** Counts what a response consists of. */
class ResponseReader {
  readonly #body: CollectedBody;
  #content = 0;
  #received = 0;
  #reads = 0;
  #count = 0;
  #interim = 0;

  constructor(
    limits: ResponseLimits,
    private readonly fail: (error: Error) => void,
  ) {
    this.#body = new CollectedBody(limits);
  }

  get body(): Buffer {
    return this.#body.whole();
  }

  get workMs(): number {
    return this.#reads * READ_MS + this.#count * PIECE_MS + this.#interim * INTERIM_MS;
  }

  /** @param unread bytes of content that come as pieces later */
  read(bytes: number, unread: number): void {
    this.#reads += 1;
    this.#received += bytes + READ_FRAMING;
    if (this.#received - this.#content - unread > MAX_FRAMING) {
      this.fail(new Error(`the response has more than ${MAX_FRAMING} bytes besides its content`));
    }
  }

  piece(piece: Buffer): void {
    this.#count += 1;
    this.#content += piece.length;
    try {
      this.#body.add(piece);
    } catch (error) {
      this.fail(error instanceof Error ? error : new Error(String(error)));
    }
  }

  interim(): void {
    this.#interim += 1;
    if (this.#interim === MAX_INTERIM + 1)
      this.fail(new Error(`the server sent more than ${MAX_INTERIM} interim responses`));
  }
}
