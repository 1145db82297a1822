import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, isIP, isIPv6, type Socket } from 'node:net';
import { hostname } from 'node:os';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import { connectInspected } from '../../lib/tls/client-handshake.ts';
import type { publicAddress } from '../../traffic-policy/public-request.ts';
import type { EventRow, SyslogTarget } from '../store/events.ts';
import type { EventSink } from './event-sink.ts';
import { eventJson } from './shown-events.ts';

const BATCH = 100;
const LINE_FEED = Buffer.from('\n');
/** Facility "log audit" (13), severity "notice" (5). */
const PRIORITY = 13 * 8 + 5;
/** Of a datagram, with room for the headers of IP and UDP. */
const MAX_DATAGRAM = 65_000;
/** How long a server has to say that it does not take what it was sent. */
const OBJECTION_MS = 1_000;
/** Bytes that a server may send: nobody reads what it says. */
const MAX_RECEIVED = 65_536;
const UNACKNOWLEDGED = 'sent; syslog servers do not answer';

/**
 * Sends events as messages of RFC 5424: over TCP or TLS with their lengths before them or line feeds behind them (RFC 6587, 5425),
 * or in datagrams (RFC 5426). Syslog knows no acknowledgement: what the server's system has taken counts as acknowledged.
 */
export function syslogSink(target: SyslogTarget, resolve: typeof publicAddress): EventSink {
  const { host, port, transport, framing, ca_pem: ca } = target;
  return {
    batch: BATCH,
    async send(events, signal) {
      const address = await resolve(host);
      signal.throwIfAborted();
      if (transport === 'udp') {
        await sendDatagrams(events.map(syslogMessage), { address, port });
        return UNACKNOWLEDGED;
      }
      const servername = isIP(host) ? {} : { servername: host };
      const socket =
        transport === 'tls'
          ? connectInspected(
              { host: address, port, ...servername, ...(ca !== undefined && { ca }) },
              { owner: 'events' },
            )
          : connect({ host: address, port });
      const framed = (message: Buffer) =>
        framing === 'lf' ? [message, LINE_FEED] : [Buffer.from(`${message.length} `), message];
      const data = Buffer.concat(events.map(syslogMessage).flatMap(framed));
      await sendAll(socket, data, signal);
      return UNACKNOWLEDGED;
    },
  };
}

/** An event as RFC 5424 has it, with its JSON as the message. */
function syslogMessage(event: EventRow): Buffer {
  const name =
    hostname()
      .replace(/[^\x21-\x7e]/g, '')
      .slice(0, 255) || '-';
  // Without the version: 32 characters are allowed.
  const type = event.type.replace(/\.v\d+$/, '').slice(0, 32);
  return Buffer.from(`<${PRIORITY}>1 ${event.created_at} ${name} device-agent - ${type} - ${eventJson(event)}`);
}

async function sendAll(socket: Socket, data: Buffer, signal: AbortSignal): Promise<void> {
  const abort = () => socket.destroy(new Error('aborted'));
  signal.addEventListener('abort', abort, { once: true });
  const take = () => {
    if (socket.bytesRead > MAX_RECEIVED) socket.destroy(new Error(`the server sends more than ${MAX_RECEIVED} bytes`));
  };
  const failed = once(socket, 'close').then(() => {
    if (socket.errored) throw socket.errored;
  });
  try {
    // A server that reads nothing is noticed by the deadline.
    socket.on('data', take).end(data);
    await Promise.race([once(socket, 'finish'), failed]);
    await Promise.race([delay(OBJECTION_MS, undefined, { ref: false }), failed]);
  } finally {
    signal.removeEventListener('abort', abort);
    failed.catch(() => {}); // reported above, if it was in time
    socket.destroy();
  }
}

/** What of a message fits into a datagram, up to the end of a character. */
function datagram(message: Buffer): Buffer {
  let end = MAX_DATAGRAM;
  while (message.length > MAX_DATAGRAM && ((message[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return message.subarray(0, end);
}

async function sendDatagrams(messages: readonly Buffer[], { address, port }: { address: string; port: number }) {
  const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
  // The server's system may say later that nobody listens there.
  let refusal: Error | null = null;
  socket.on('error', (error) => {
    refusal = error;
  });
  try {
    socket.connect(port, address);
    await once(socket, 'connect');
    for (const message of messages) {
      await new Promise<void>((resolve, reject) => {
        socket.send(datagram(message), (error) => (error ? reject(error) : resolve()));
      });
    }
    await nextTurn();
    if (refusal !== null) throw refusal;
  } finally {
    socket.close();
  }
}
