import type { Duplex } from 'node:stream';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { dialThrough } from './dial.ts';
import { type Destination, type ProxyRules, proxyFor } from './proxy-rules.ts';
import { checkServerIdentity } from './tls-options.ts';

type Done = (error: Error | null, connection: Duplex) => void;

/** The option `createConnection` of node:http and node:https. */
export type CreateConnection = (options: object, done: Done) => undefined;

/**
 * Creates the connections of requests to a URL through its proxy.
 *
 * @param tls for https: trusted CAs, whether to verify the certificate, and for which name instead of the URL's
 * @param signal aborts the connection attempt
 * @returns undefined when the URL needs no proxy
 */
export function connectionFor(
  url: URL,
  rules: ProxyRules,
  tls: Pick<ConnectionOptions, 'ca' | 'rejectUnauthorized' | 'servername'>,
  signal: AbortSignal,
): CreateConnection | undefined {
  const isTls = url.protocol === 'https:';
  const destination = { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port) || (isTls ? 443 : 80) };
  const proxy = proxyFor(rules, isTls ? 'https' : 'http', destination);
  if (!proxy) return undefined;
  return (_options, done) => {
    const dialled = dialThrough(proxy)(destination, signal);
    const connected = isTls ? dialled.then((socket) => secure(socket, destination, tls)) : dialled;
    // Node's types require a connection even with an error; Node checks the error first.
    connected.then(
      (connection) => done(null, connection),
      (error: Error) => done(error, undefined as never),
    );
  };
}

function secure(
  socket: Duplex,
  { host }: Destination,
  options: Pick<ConnectionOptions, 'ca' | 'rejectUnauthorized' | 'servername'>,
): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const isAddress = /^[\d.]+$|:/.test(host);
    const tls = connectTls({ checkServerIdentity, ...(!isAddress && { servername: host }), ...options, socket, host });
    tls.once('secureConnect', () => resolve(tls));
    tls.once('error', reject);
  });
}
