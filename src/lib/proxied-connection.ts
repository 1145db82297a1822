import type { Duplex } from 'node:stream';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { dialThrough } from './dial.ts';
import { type Destination, type ProxyRules, proxyFor } from './proxy-rules.ts';

type Done = (error: Error | null, connection: Duplex) => void;

/** The option `createConnection` of node:http and node:https. */
export type CreateConnection = (options: object, done: Done) => undefined;

/**
 * How requests to a URL are connected.
 *
 * @param tls for https: whom to trust, and whether trust matters
 * @param signal ends the connecting
 * @returns undefined when no proxy is in between, and Node's own way is right
 */
export function connectionFor(
  url: URL,
  rules: ProxyRules,
  tls: Pick<ConnectionOptions, 'ca' | 'rejectUnauthorized'>,
  signal: AbortSignal,
): CreateConnection | undefined {
  const isTls = url.protocol === 'https:';
  const destination = { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port) || (isTls ? 443 : 80) };
  const proxy = proxyFor(rules, isTls ? 'https' : 'http', destination);
  if (!proxy) return undefined;
  return (_options, done) => {
    const dialled = dialThrough(proxy)(destination, signal);
    const connected = isTls ? dialled.then((socket) => secure(socket, destination, tls)) : dialled;
    // Node asks for a connection even with an error, and looks at the error first.
    connected.then(
      (connection) => done(null, connection),
      (error: Error) => done(error, undefined as never),
    );
  };
}

function secure(
  socket: Duplex,
  { host }: Destination,
  options: Pick<ConnectionOptions, 'ca' | 'rejectUnauthorized'>,
): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const isAddress = /^[\d.]+$|:/.test(host);
    const tls = connectTls({ ...options, socket, host, ...(!isAddress && { servername: host }) });
    tls.once('secureConnect', () => resolve(tls));
    tls.once('error', reject);
  });
}
