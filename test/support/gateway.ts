import { mkdtemp, rm } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import ngrok from '@ngrok/ngrok';
import { type Gateway, startGateway } from '../../src/gateway/gateway.ts';
import type { GatewayOptions } from '../../src/gateway/gateway-options.ts';
import { createLog } from '../../src/lib/log.ts';

/** A gateway on free ports of the loopback, with its data in a folder of its own. */
export interface TestGateway extends Gateway {
  /** Accepted until the gateway is closed. */
  authtoken: string;
  dataDir: string;
  /** Of the port for agents alone; 0 for none. */
  sessionPort: number;
  /** Closes the gateway and removes its folder. */
  close(): Promise<void>;
}

/** Starts a gateway for a test. Give a `dataDir` to keep the CA over a restart; it is then not removed. */
export async function startTestGateway(options: Partial<GatewayOptions> = {}): Promise<TestGateway> {
  const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), 'gateway-')));
  const gateway = await startGateway({
    domain: 'localhost',
    host: '127.0.0.1',
    httpPort: 0,
    httpsPort: 0,
    sessionPort: 0,
    log: await createLog('silent', 'json'),
    ...options,
    dataDir,
  });
  return {
    ...gateway,
    sessionPort: gateway.sessionPort ?? 0,
    authtoken: await gateway.issueAuthtoken(),
    dataDir,
    async close() {
      await gateway.close();
      if (options.dataDir === undefined) await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/**
 * A builder of the real SDK, set up for a gateway; it does not reconnect.
 *
 * @param address where to connect instead of the gateway itself, such as a proxy in between
 */
export function agentSession(gateway: TestGateway, address = gateway.sessionAddress): ngrok.SessionBuilder {
  return new ngrok.SessionBuilder()
    .authtoken(gateway.authtoken)
    .serverAddr(address)
    .caCert(Buffer.from(gateway.sessionCa))
    .handleDisconnection(() => false);
}

/**
 * GET over HTTPS; the name goes into SNI and Host, for it need not resolve. It need not be in the certificate either,
 * for a name that nobody serves gets the default one.
 */
export function getPublic(
  { httpsPort, sessionCa, host: address = '127.0.0.1' }: Pick<Gateway, 'httpsPort' | 'sessionCa'> & { host?: string },
  url: string,
  headers: Record<string, string> = {},
): Promise<{ status: number | undefined; headers: IncomingHttpHeaders; body: string }> {
  const { hostname, host, pathname } = new URL(url);
  return new Promise((resolve, reject) => {
    request(
      {
        host: address,
        port: httpsPort,
        servername: hostname,
        path: pathname,
        headers: { host, ...headers },
        ca: sessionCa,
        checkServerIdentity: () => undefined,
        agent: false,
      },
      async (response) =>
        resolve({ status: response.statusCode, headers: response.headers, body: await text(response) }),
    )
      .on('error', reject)
      .end();
  });
}
