import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import { ChannelDuplex } from '../../../agent-protocol/channel-duplex.ts';
import type { ResponseHead } from '../../../lib/http/response-head.ts';
import { MalformedMessage } from '../../../lib/http/response-head.ts';
import type { ResponseOutcome } from '../../../traffic-policy/steps.ts';
import { pipeBoth } from '../connections/open-connections.ts';
import type { Upgrade } from '../http/client-message.ts';
import { resetConnection } from '../http/error-response.ts';
import { headerValue, responseHeaders } from '../http/headers.ts';
import { Exchange, type ExchangeParts } from './exchange.ts';
import { answerInstead } from './policy-outcome.ts';

const SWITCHING_PROTOCOLS = 101;

/**
 * The protocols that clients and upstreams can switch to: WebSocket, Docker's and Kubernetes' streams. Nothing that carries
 * further HTTP requests, such as h2c: they would pass by the policy.
 */
const FORWARDED: ReadonlySet<string> = new Set(['websocket', 'tcp', 'spdy/3.1']);

/** Whether the upstream gets to know that the client asks for a protocol. Spelled otherwise, upstreams could read another. */
export function isForwarded({ protocol }: Upgrade): boolean {
  return FORWARDED.has(protocol.toLowerCase());
}

export type OnConnected = (client: Duplex, upstream: Duplex) => void;

/** A request for another protocol, usually WebSocket. When the upstream agrees, both sides are piped together. */
export class UpgradeExchange extends Exchange {
  readonly #upgrade: Upgrade;
  readonly #onConnected: OnConnected;

  constructor(parts: ExchangeParts, upgrade: Upgrade, onConnected: OnConnected) {
    super({ ...parts, upgrade: upgrade.protocol });
    this.#upgrade = upgrade;
    this.#onConnected = onConnected;
  }

  override onUpgrade(head: ResponseHead, channel: ByteChannel, rest: Buffer): void {
    const { request, context } = this.parts;
    const protocol = headerValue(head.headers, 'upgrade') ?? '';
    if (protocol.toLowerCase() !== this.#upgrade.protocol.toLowerCase()) {
      super.onUpgrade(head, channel, rest);
      this.onFailed(new MalformedMessage('upgrade to another protocol than the requested one'));
      return;
    }
    const response = { status: head.status, headers: responseHeaders(head.headers, head.connection, head.status) };
    this.giveUp();
    this.notifyPolicy(head.status);
    const stream = new ChannelDuplex(channel);
    stream.once('close', () => this.parts.pool.upgradeEnded());
    if (rest.length > 0) stream.onData(rest);
    const connect = (outcome: ResponseOutcome | undefined) => {
      if (outcome !== undefined) {
        stream.destroy();
        answerInstead(request, outcome, context);
      } else
        this.#connect(headText(response.status, protocol, request.withCookies(response.headers), head.reason), stream);
    };
    const outcome = request.policy.onHttpResponse?.(request, response);
    if (outcome instanceof Promise) void outcome.then(connect).catch(() => resetConnection(request.req.socket));
    else connect(outcome);
  }

  #connect(head: string, stream: ChannelDuplex): void {
    const socket = this.#upgrade.accept();
    if (socket.destroyed) {
      stream.destroy();
      return;
    }
    this.parts.request.watch?.answered(SWITCHING_PROTOCOLS, null);
    socket.write(head, 'latin1');
    this.#onConnected(socket, stream);
    pipeBoth(socket, stream, this.parts.request.bandwidth);
  }
}

export function headText(
  status: number,
  upgrade: string,
  headers: readonly string[],
  reason = STATUS_CODES[status] ?? '',
): string {
  let text = `HTTP/1.1 ${status} ${reason}\r\nConnection: Upgrade\r\nUpgrade: ${upgrade}\r\n`;
  for (let at = 0; at < headers.length; at += 2) text += `${headers[at]}: ${headers[at + 1]}\r\n`;
  return `${text}\r\n`;
}
