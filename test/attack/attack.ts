import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as wait } from 'node:timers/promises';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import type { KeyPair } from './costly-certificates.ts';

/** What is attacked. */
export interface Target {
  httpPort: number;
  httpsPort: number;
  sessionPort: number;
  /** An endpoint of an honest agent; answers `/bytes/<n>` and, after as many milliseconds, `/wait/<ms>`. */
  host: string;
  /** The endpoint of an agent whose upstream is broken. */
  brokenHost: string;
  /** The valid authtoken of a hostile tenant. */
  authtoken: string;
  /** Those of several hostile tenants, with that one. */
  authtokens: readonly string[];
  /** With what servers of attackers prove, for 127.0.0.1, that they are on the public internet. */
  serverPair: KeyPair;
  /** The certificate authority of that, PEM. */
  authority: string;
  /** The secret of a code to join with, that the hostile tenant has. */
  joinSecret: string;
}

/** One connection of an attacker. */
export interface Life {
  target: Target;
  /** The attacker's own address. */
  from: string;
  /** Aborts when the attacker leaves. */
  signal: AbortSignal;
}

export interface Attack {
  name: string;
  /** Connections at a time. */
  width: number;
  /** Opens a connection and abuses it; resolves when it is closed, rejects when it was not accepted. */
  live(life: Life): Promise<unknown>;
}

export interface AttackResult {
  name: string;
  connections: number;
  /** Connections that the gateway refused, or closed while they were opened. */
  refused: number;
  /** Connections that the gateway closed before the attacker left. */
  ended: number;
}

/** The longest that an attacker stays: he also leaves without a word. */
const LIFE_MS = 60_000;
/** An attacker pauses between two connections: to open as many as possible would only measure TLS handshakes. */
const PAUSE_MS = 500;
const HOST = '127.0.0.1';

/** Runs an attack until the signal aborts; `from` is used by turns. @param onRefused called with why a connection was not accepted */
export async function carryOut(
  attack: Attack,
  target: Target,
  from: readonly string[],
  stopped: AbortSignal,
  onRefused: (error: unknown) => void = () => {},
): Promise<AttackResult> {
  const result: AttackResult = { name: attack.name, connections: 0, refused: 0, ended: 0 };
  const one = async (place: number) => {
    await wait(Math.random() * 5 * PAUSE_MS);
    while (!stopped.aborted) {
      const leaving = new AbortController();
      const leave = () => leaving.abort();
      const timer = setTimeout(leave, LIFE_MS * (0.2 + Math.random()));
      stopped.addEventListener('abort', leave, { once: true });
      result.connections += 1;
      try {
        await attack.live({ target, from: from[place % from.length] ?? HOST, signal: leaving.signal });
        if (!leaving.signal.aborted) result.ended += 1;
      } catch (error) {
        result.refused += 1;
        onRefused(error);
      }
      clearTimeout(timer);
      stopped.removeEventListener('abort', leave);
      await wait(PAUSE_MS * (0.5 + Math.random()));
    }
  };
  await Promise.all(Array.from({ length: attack.width }, (_, place) => one(place)));
  return result;
}

/** A TCP connection, open. */
export async function openTcp(port: number, { from, signal }: Life): Promise<Socket> {
  const socket = connect({ host: HOST, port, localAddress: from });
  await opened(socket, 'connect', signal);
  return socket;
}

/** A TLS connection, open. */
export async function openTls(
  port: number,
  servername: string,
  life: Omit<Life, 'target'>,
  alpn = 'http/1.1',
): Promise<TLSSocket> {
  // The types lack localAddress.
  const address = { host: HOST, port, localAddress: life.from };
  const socket = connectTls({ ...address, servername, rejectUnauthorized: false, ALPNProtocols: [alpn] });
  await opened(socket, 'secureConnect', life.signal);
  return socket;
}

async function opened(socket: Socket, event: string, signal: AbortSignal): Promise<void> {
  socket.on('error', () => {});
  const close = () => socket.destroy();
  // The attacker may have left while something else was waited for.
  if (signal.aborted) close();
  signal.addEventListener('abort', close, { once: true });
  socket.once('close', () => signal.removeEventListener('abort', close));
  const closed = new AbortController();
  socket.once('close', () => closed.abort());
  await once(socket, event, { signal: closed.signal });
}

/** Waits until the gateway closes the connection or the attacker leaves. A reader takes what arrives. */
export async function held(socket: Duplex, { reads = true } = {}): Promise<void> {
  if (reads) socket.resume();
  // A socket that nobody reads does not notice its end.
  if (!socket.destroyed) await new Promise<void>((resolve) => socket.once('close', resolve));
}

/** Bytes that wait in the attacker's own process at most. */
const MAX_UNSENT = 1024 * 1024;

/** Acts again and again while the connection is open and the gateway takes what is sent. */
export async function repeat(socket: Duplex, everyMs: number, act: () => void, options = {}): Promise<void> {
  const timer = setInterval(() => {
    if (socket.writable && socket.writableLength < MAX_UNSENT) act();
  }, everyMs);
  try {
    await held(socket, options);
  } finally {
    clearInterval(timer);
  }
}
