import { type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { text } from 'node:stream/consumers';
import { lookupName } from '../lib/network/loopback-names.ts';
import { connectionFor } from '../lib/network/proxied-connection.ts';
import { NO_PROXIES, type ProxyRules } from '../lib/network/proxy-rules.ts';
import type { Fetch, FetchAnswer } from './fetch.ts';

/** Options that Node's own fetch does not have. */
export interface FetchOptions {
  /** PEM of the CA to trust instead of the public CAs. */
  ca?: string;
  proxies?: ProxyRules;
  /** Connects here instead of the URL's host, whose certificate it still requires. */
  address?: { host: string; port: number };
  /** Accepts any certificate. Send no secret, and verify what the response says. */
  isUnverified?: boolean;
}

/**
 * Makes a fetch with Node's http client. Node's own fetch would need an environment variable at the start of the process
 * for either option, or the exact undici that Node was built with.
 */
export function fetchTrusting({ ca, proxies = NO_PROXIES, address: place, isUnverified }: FetchOptions): Fetch {
  return (address, { method, headers, body, signal }) =>
    new Promise((resolve, reject) => {
      const url = new URL(address);
      const tls = { ...(ca !== undefined && { ca }), ...(isUnverified && { rejectUnauthorized: false }) };
      const createConnection = connectionFor(url, proxies, tls, signal);
      const options = {
        method,
        headers: { ...headers, ...(place && { host: url.host }) },
        signal,
        lookup: lookupName,
        ...tls,
        ...(createConnection && { createConnection }),
        ...(place && { ...place, servername: url.hostname }),
      };
      const call = url.protocol === 'https:' ? requestHttps(url, options) : requestHttp(url, options);
      call.on('response', (message) => {
        toAnswer(message).then(resolve, reject);
      });
      call.on('error', reject);
      call.end(body);
    });
}

async function toAnswer(message: IncomingMessage): Promise<FetchAnswer> {
  const body = await text(message);
  const { statusCode: status = 0, headersDistinct: headers } = message;
  return { status, headers: { get: (name) => headers[name]?.join(', ') ?? null }, text: async () => body };
}
