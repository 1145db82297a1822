import { connect, type Socket } from 'node:net';

/** A connection for one request at a time; minimal, because it shares the machine with the server. */
export class KeepAliveClient {
  readonly #socket: Socket;
  #received = '';
  #answered: ((status: number) => void) | null = null;

  constructor(
    port: number,
    private readonly headers: string,
  ) {
    this.#socket = connect(port, '127.0.0.1').setNoDelay(true).setEncoding('latin1');
    this.#socket.on('data', (text: string) => this.#take(text));
  }

  /** Sends a request; resolves with the status of the complete response, which must have a Content-Length. */
  request(method: string, path: string, body = ''): Promise<number> {
    const length =
      body === '' ? '' : `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n`;
    this.#socket.write(`${method} ${path} HTTP/1.1\r\nHost: bench\r\n${this.headers}${length}\r\n${body}`);
    return new Promise((resolve) => {
      this.#answered = resolve;
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(text: string): void {
    this.#received += text;
    const end = this.#received.indexOf('\r\n\r\n');
    if (end < 0) return;
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(this.#received)?.[1] ?? 0);
    if (this.#received.length < end + 4 + length) return;
    const status = Number(this.#received.slice(9, 12));
    this.#received = '';
    this.#answered?.(status);
  }
}
