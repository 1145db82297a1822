import { request } from 'node:https';
import { buffer } from 'node:stream/consumers';
import type { PublicRequest, PublicResponse } from '../../src/traffic-policy/fetch-document.ts';

/**
 * Sends a request to a server of this machine, whatever its name and certificate.
 *
 * @param localAddress where it comes from; left out: the system's choice
 */
export function exchange(
  url: string,
  { method = 'GET', headers = {}, body }: PublicRequest = {},
  localAddress?: string,
): Promise<PublicResponse> {
  const { hostname, host, port, pathname, search } = new URL(url);
  const options = {
    ...{ host: '127.0.0.1', port, servername: hostname, path: pathname + search, method, agent: false },
    headers: { ...headers, host },
    rejectUnauthorized: false,
    ...(localAddress !== undefined && { localAddress }),
  };
  return new Promise((resolve, reject) => {
    request(options, async (response) =>
      resolve({ status: response.statusCode ?? 0, headers: response.headers, body: await buffer(response) }),
    )
      .on('error', reject)
      .end(body);
  });
}
