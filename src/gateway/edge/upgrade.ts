import { type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { UpstreamChannel } from '../endpoint.ts';
import { TunnelStream } from '../tunnel-stream.ts';
import { Exchange, type ExchangeParts } from './exchange.ts';
import { headerValue, responseHeaders } from './headers.ts';
import { join } from './join.ts';
import { answerInstead } from './policy-outcome.ts';
import type { ResponseHead } from './response-head.ts';

/** Puts a response on a connection that Node has taken its hands off because the client asked for an upgrade. */
export function responseOn(res: ServerResponse, socket: Socket): ServerResponse {
  res.shouldKeepAlive = false;
  res.assignSocket(socket);
  res.on('finish', () => {
    res.detachSocket(socket);
    socket.destroySoon();
  });
  return res;
}

/** A client that asks for another protocol. */
export interface UpgradeClient {
  /** Made by {@link responseOn}. */
  res: ServerResponse;
  /** What the client sent after its request already. */
  early: Buffer;
}

/** The client's side of a connection that is to be upgraded. */
export interface UpgradeSide extends UpgradeClient {
  /** Told of both sides once they are joined. */
  onJoined: (socket: Socket, stream: Duplex) => void;
}

/** A request for another protocol, WebSocket mostly. When the upstream agrees, both sides are joined. */
export class UpgradeExchange extends Exchange {
  readonly #side: UpgradeSide;

  constructor(parts: ExchangeParts & { upgrade: string }, side: UpgradeSide) {
    super(parts);
    this.#side = side;
  }

  override onUpgrade(head: ResponseHead, channel: UpstreamChannel, rest: Buffer): void {
    const { req, request, policy, upgrade, tally } = this.parts;
    const { res, early, onJoined } = this.#side;
    const { socket } = req;
    const response = { status: head.status, headers: responseHeaders(head.headers, head.connection, head.status) };
    this.giveUp();
    this.tellPolicy(head.status);
    const outcome = policy.onHttpResponse?.(request, response);
    if (outcome !== undefined) {
      channel.abort();
      answerInstead(req, res, outcome, tally);
      return;
    }
    res.detachSocket(socket);
    const stream = new TunnelStream(channel);
    if (rest.length > 0) stream.onData(rest);
    if (socket.destroyed) {
      stream.destroy();
      return;
    }
    socket.write(
      headText(response.status, headerValue(head.headers, 'upgrade') ?? upgrade ?? '', response.headers),
      'latin1',
    );
    if (early.length > 0) stream.write(early);
    onJoined(socket, stream);
    join(socket, stream);
  }
}

/** The head of an answer that goes on with another protocol. */
export function headText(status: number, upgrade: string, headers: readonly string[]): string {
  let text = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\nConnection: Upgrade\r\nUpgrade: ${upgrade}\r\n`;
  for (let at = 0; at < headers.length; at += 2) text += `${headers[at]}: ${headers[at + 1]}\r\n`;
  return `${text}\r\n`;
}
