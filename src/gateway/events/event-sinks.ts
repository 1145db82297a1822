import { createHmac } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdir, open, rename, stat } from 'node:fs/promises';
import { connect, isIP, isIPv6, type Socket } from 'node:net';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { hasErrno } from '../../lib/errors.ts';
import type { publicAddress, publicRequest } from '../../traffic-policy/public-request.ts';
import type { EventRow, FileTarget, SyslogTarget, WebhookTarget } from '../store/events.ts';
import { type EventSink, eventJson } from './event-json.ts';

const SYSLOG_BATCH = 100;
/** Facility "log audit" (13), severity "notice" (5). */
const PRIORITY = 13 * 8 + 5;
/** Of a datagram, with room for the headers of IP and UDP. */
const MAX_DATAGRAM = 65_000;
/** How long a server has to say that it does not take what it was sent. */
const OBJECTION_MS = 1_000;

/**
 * Sends events as messages of RFC 5424: over TCP or TLS with their lengths before them (RFC 6587, 5425), or in datagrams
 * (RFC 5426). Syslog knows no acknowledgement: what the server's system has taken counts as acknowledged.
 */
export function syslogSink({ host, port, transport }: SyslogTarget, resolve: typeof publicAddress): EventSink {
  return {
    batch: SYSLOG_BATCH,
    async send(events, signal) {
      const address = await resolve(host);
      signal.throwIfAborted();
      if (transport === 'udp') return sendDatagrams(events.map(syslogMessage), { address, port });
      const servername = isIP(host) ? {} : { servername: host };
      const socket =
        transport === 'tls' ? connectTls({ host: address, port, ...servername }) : connect({ host: address, port });
      const data = Buffer.concat(
        events.map(syslogMessage).flatMap((message) => [Buffer.from(`${message.length} `), message]),
      );
      await sendAll(socket, data, signal);
    },
  };
}

/** An event as RFC 5424 has it, with its JSON as the message. */
export function syslogMessage(event: EventRow): Buffer {
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
  const failed = once(socket, 'close').then(() => {
    if (socket.errored) throw socket.errored;
  });
  try {
    // A server that reads nothing is noticed by the deadline.
    socket.resume().end(data);
    await Promise.race([once(socket, 'finish'), failed]);
    await Promise.race([delay(OBJECTION_MS, undefined, { ref: false }), failed]);
  } finally {
    signal.removeEventListener('abort', abort);
    failed.catch(() => {}); // reported above, if it was in time
    socket.destroy();
  }
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
        socket.send(message.subarray(0, MAX_DATAGRAM), (error) => (error ? reject(error) : resolve()));
      });
    }
    await nextTurn();
    if (refusal !== null) throw refusal;
  } finally {
    socket.close();
  }
}

/** When a file has so many bytes, a new one is begun. */
const MAX_BYTES = 16 * 1024 * 1024;
/** Old files beside the current one. */
const KEPT = 4;
/** The end of a file in which its last line is looked for, first. */
const TAIL_BYTES = 64 * 1024;
const FILE_BATCH = 100;
const NEWLINE = 0x0a;

/**
 * Appends events as lines of JSON to a file, which only the gateway's user can read. An event is there once: lines that an
 * earlier gateway had written before it ended are not repeated.
 *
 * @param maxBytes the size at which a new file is begun
 */
export function fileSink({ name }: FileTarget, folder: string, maxBytes = MAX_BYTES): EventSink {
  const path = (number: number) => join(folder, number === 0 ? `${name}.jsonl` : `${name}.${number}.jsonl`);
  /** Id of the event in the last line; null: not read yet. */
  let last: string | null = null;
  /** A slow disk may still be writing what was given up. */
  let writing: Promise<void> = Promise.resolve();
  return {
    batch: FILE_BATCH,
    async send(events, signal) {
      await writing.catch(() => {}); // reported where it was started
      await mkdir(folder, { recursive: true, mode: 0o700 });
      last ??= await repairedEnd(path(0));
      const missing = events.filter(({ id }) => id > (last ?? ''));
      if (missing.length === 0) return;
      if ((await sizeOf(path(0))) >= maxBytes) await rotate(path);
      signal.throwIfAborted();
      // Written in part, its end is repaired the next time.
      last = null;
      writing = append(path(0), missing);
      await writing;
      last = missing.at(-1)?.id ?? null;
    },
  };
}

async function append(path: string, events: readonly EventRow[]): Promise<void> {
  const file = await open(path, 'a', 0o600);
  try {
    await file.appendFile(events.map((event) => `${eventJson(event)}\n`).join(''));
    await file.datasync();
  } finally {
    await file.close();
  }
}

/** Cuts a line off that was not written to its end. @returns the id of the last event; empty if there is none */
async function repairedEnd(path: string): Promise<string> {
  const size = await sizeOf(path);
  if (size === 0) return '';
  const file = await open(path, 'r+');
  try {
    for (let bytes = TAIL_BYTES; ; bytes *= 4) {
      const start = Math.max(0, size - bytes);
      const tail = Buffer.alloc(size - start);
      await file.read(tail, 0, tail.length, start);
      const end = tail.lastIndexOf(NEWLINE);
      const before = tail.subarray(0, Math.max(0, end)).lastIndexOf(NEWLINE);
      // Its last line may be longer than the tail.
      if (before < 0 && start > 0) continue;
      await file.truncate(start + end + 1);
      return /^\{"event_id":"(\w+)"/.exec(tail.toString('utf8', before + 1, end + 1))?.[1] ?? '';
    }
  } finally {
    await file.close();
  }
}

async function rotate(path: (number: number) => string): Promise<void> {
  for (let number = KEPT - 1; number >= 0; number--) {
    await rename(path(number), path(number + 1)).catch((error: unknown) => {
      if (!hasErrno(error, 'ENOENT')) throw error;
    });
  }
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return 0;
    throw error;
  }
}

/** Of a response, which nobody reads. */
const MAX_RESPONSE = 64 * 1024;

/** Sends each event as a request that is signed as in the specification of Standard Webhooks. */
export function webhookSink({ url, signingSecret }: WebhookTarget, request: typeof publicRequest): EventSink {
  const key = Buffer.from(signingSecret.replace(/^whsec_/, ''), 'base64');
  return {
    batch: 1,
    async send(events, signal) {
      for (const event of events) {
        const body = eventJson(event);
        const seconds = Math.floor(Date.now() / 1000);
        const signature = createHmac('sha256', key).update(`${event.id}.${seconds}.${body}`).digest('base64');
        const headers = {
          'content-type': 'application/json',
          'user-agent': 'device-agent-gateway',
          'webhook-id': event.id,
          'webhook-timestamp': String(seconds),
          'webhook-signature': `v1,${signature}`,
        };
        const { status } = await request(
          {
            ...{ method: 'POST', url: new URL(url), headers: Object.entries(headers).flat() },
            ...{ body: Buffer.from(body), maxBytes: MAX_RESPONSE },
          },
          signal,
        );
        if (status < 200 || status > 299) throw new Error(`the server responded with status ${status}`);
      }
    },
  };
}
