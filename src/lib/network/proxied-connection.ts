import { isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { checkServerIdentity } from '../tls/tls-options.ts';
import { connectInTime, secureAt, type TrustedTime } from '../tls/trusted-time.ts';
import { dialThrough, directDial } from './dial.ts';
import { withoutBrackets } from './ip-address.ts';
import { lookupName } from './loopback-names.ts';
import { type Destination, type ProxyRules, proxyFor } from './proxy-rules.ts';

type OfTls = Pick<ConnectionOptions, 'ca' | 'rejectUnauthorized' | 'servername' | 'ALPNProtocols'>;
type Done = (error: Error | null, connection: Duplex) => void;

/** The option `createConnection` of node:http and node:https. */
export type CreateConnection = (options: object, done: Done) => undefined;

/**
 * Creates the connections of requests to a URL through its proxy.
 *
 * @param tls for https: trusted CAs, whether to verify the certificate, and for which name instead of the URL's; who is asked
 *   for the time when the dates of the certificate do not fit this machine's clock
 * @param signal aborts the connection attempt
 * @returns undefined when the URL needs neither a proxy nor the time
 */
export function connectionFor(
  url: URL,
  rules: ProxyRules,
  { time, ...tls }: OfTls & { time?: TrustedTime },
  signal: AbortSignal,
): CreateConnection | undefined {
  const isTls = url.protocol === 'https:';
  const destination = { host: withoutBrackets(url.hostname), port: Number(url.port) || (isTls ? 443 : 80) };
  const proxy = proxyFor(rules, isTls ? 'https' : 'http', destination);
  const isTimed = isTls && time !== undefined;
  if (!proxy && !isTimed) return undefined;
  const dial = proxy ? dialThrough(proxy) : directDial(lookupName);
  const usual = async () => {
    const socket = await dial(destination, signal);
    return isTls ? secure(socket, destination, tls) : socket;
  };
  const { host } = destination;
  const serverName = tls.servername ?? (isIP(host) === 0 ? host : undefined);
  return (_options, done) => {
    const connected: Promise<Duplex> = isTimed
      ? connectInTime(time, signal, usual, async (proved) =>
          secureAt(proved, await dial(destination, signal), { host, serverName }, signal),
        )
      : usual();
    // Node's types require a connection even with an error; Node checks the error first.
    connected.then(
      (connection) => done(null, connection),
      (error: Error) => done(error, undefined as never),
    );
  };
}

function secure(socket: Duplex, { host }: Destination, options: OfTls): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const isAddress = /^[\d.]+$|:/.test(host);
    const tls = connectTls({ checkServerIdentity, ...(!isAddress && { servername: host }), ...options, socket, host });
    tls.once('secureConnect', () => resolve(tls));
    tls.once('error', reject);
  });
}
