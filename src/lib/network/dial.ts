import { once } from 'node:events';
import { type RequestOptions, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { connect, type LookupFunction, type Socket } from 'node:net';
import { messageOf } from '../errors.ts';
import { hostPort } from './ip-address.ts';
import { type Destination, displayProxy, type ProxyServer } from './proxy-rules.ts';
import { connectBySocks } from './socks.ts';

/**
 * Makes a connection.
 *
 * @throws {ProxyFailure} when the proxy is unreachable or refuses the connection
 * @throws other system errors, or the signal's reason when it aborts
 */
export type Dial = (destination: Destination, signal: AbortSignal) => Promise<Socket>;

/** The proxy is unreachable or refused to connect. */
export class ProxyFailure extends Error {
  constructor(proxy: ProxyServer, { host, port }: Destination, reason: unknown) {
    super(`proxy ${displayProxy(proxy)} cannot connect to ${hostPort(host, port)}: ${messageOf(reason)}`, {
      cause: reason,
    });
    this.name = 'ProxyFailure';
  }
}

/** @param lookup resolves names; default: the system's resolver */
export function directDial(lookup?: LookupFunction): Dial {
  return (destination, signal) => open(destination, lookup, signal);
}

/** Connects through a proxy, which resolves the names. */
export function dialThrough(proxy: ProxyServer): Dial {
  return async (destination, signal) => {
    try {
      return proxy.kind === 'socks5'
        ? await throughSocks(proxy, destination, signal)
        : await throughHttp(proxy, destination, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw new ProxyFailure(proxy, destination, error);
    }
  };
}

async function open({ host, port }: Destination, lookup: LookupFunction | undefined, signal: AbortSignal) {
  signal.throwIfAborted();
  const socket = connect({
    host,
    port,
    ...(lookup && { lookup }),
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: 2000,
    noDelay: true,
  });
  try {
    await once(socket, 'connect', { signal });
    return socket;
  } catch (error) {
    socket.destroy();
    signal.throwIfAborted();
    throw error;
  }
}

async function throughSocks(proxy: ProxyServer, destination: Destination, signal: AbortSignal): Promise<Socket> {
  const socket = await open(proxy, undefined, signal);
  const abort = () => socket.destroy(signal.reason);
  signal.addEventListener('abort', abort);
  try {
    await connectBySocks(socket, destination, proxy.credentials);
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

/** CONNECT (RFC 9110, section 9.3.6). */
function throughHttp(proxy: ProxyServer, destination: Destination, signal: AbortSignal): Promise<Socket> {
  const authority = hostPort(destination.host, destination.port);
  const { credentials } = proxy;
  const basic = credentials && Buffer.from(`${credentials.user}:${credentials.password}`).toString('base64');
  const options: RequestOptions = {
    host: proxy.host,
    port: proxy.port,
    method: 'CONNECT',
    path: authority,
    agent: false,
    signal,
    headers: { host: authority, ...(basic !== null && { 'proxy-authorization': `Basic ${basic}` }) },
  };
  return new Promise((resolve, reject) => {
    const request = proxy.kind === 'https' ? requestHttps(options) : requestHttp(options);
    request.on('error', reject);
    request.on('response', ({ statusCode, statusMessage }) => {
      request.destroy();
      reject(new Error(describeStatus(statusCode, statusMessage)));
    });
    request.on('connect', ({ statusCode = 0, statusMessage }, socket: Socket, head: Buffer) => {
      if (statusCode >= 200 && statusCode < 300) {
        socket.setNoDelay(true);
        if (head.length > 0) socket.unshift(head);
        return resolve(socket);
      }
      socket.destroy();
      reject(new Error(describeStatus(statusCode, statusMessage)));
    });
    request.end();
  });
}

function describeStatus(status: number | undefined, text: string | undefined): string {
  const hint = status === 407 ? '; add user and password to its URL' : '';
  return `it responded with ${status} ${text ?? ''}`.trimEnd() + hint;
}
