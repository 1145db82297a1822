import { once } from 'node:events';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

export interface ReceivedEvent {
  readonly id: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** A status, or what answers with one; `hang` answers nothing; `die` ends the connection; `forget` takes the event, but ends the connection. */
export type Reaction = number | ((res: ServerResponse) => void) | 'hang' | 'die' | 'forget';

/** A server that webhooks are sent to. */
export class EventReceiver {
  /** Events that it has acknowledged, repeated ones included. */
  readonly acknowledged: ReceivedEvent[] = [];
  /** What it does with the next event. */
  react: (event: ReceivedEvent) => Reaction = () => 204;
  /** How many there were. */
  connections = 0;
  #port = 0;
  #server: Server | null = null;

  /** @param pair for TLS; left out: without */
  constructor(private readonly pair?: { cert: string; key: string }) {}

  /** The gateway takes no other URL, whether or not there is TLS. */
  get url(): string {
    return `https://127.0.0.1:${this.#port}/`;
  }

  get ids(): string[] {
    return this.acknowledged.map(({ id }) => id);
  }

  /** Listens, at the same port as before. */
  async listen(): Promise<void> {
    const server = this.pair ? createTlsServer(this.pair) : createServer();
    server.on('connection', () => {
      this.connections += 1;
    });
    server.on('request', (req, res) => this.#take(req, res));
    server.listen(this.#port, '127.0.0.1');
    await once(server, 'listening');
    this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  /** Ends all connections, also those that hang. */
  reset(): void {
    this.#server?.closeAllConnections();
  }

  /** Refuses connections until it listens again. */
  async refuse(): Promise<void> {
    const server = this.#server;
    if (server === null) return;
    server.close();
    this.reset();
    await once(server, 'close');
  }

  async #take(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const body = await text(req).catch(() => null);
    if (body === null) return;
    const event = { id: String(req.headers['webhook-id']), headers: req.headers, body };
    const reaction = this.react(event);
    if (reaction === 'hang') return;
    if (typeof reaction === 'function') reaction(res);
    const status = typeof reaction === 'function' ? res.statusCode : Number(reaction);
    if (reaction === 'forget' || status < 300) this.acknowledged.push(event);
    if (typeof reaction === 'function') return;
    if (typeof reaction === 'number') res.writeHead(reaction).end();
    else req.socket.destroy();
  }
}
