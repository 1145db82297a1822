import type { GatewayOptions } from '../../src/gateway/context/gateway-options.ts';
import { type Gateway, startGateway } from '../../src/gateway/gateway.ts';
import { closeOnce } from './close-once.ts';
import { freePorts } from './free-ports.ts';
import { silentLog } from './silent-log.ts';
import { temporaryFolder } from './temporary-folder.ts';

/** The encryption key of all nodes. */
export const CLUSTER_KEY = Buffer.alloc(32, 7).toString('base64');

/**
 * A gateway in this process that shares a database with others; it is closed with the test, or before.
 * @param differing options that are not as usual
 */
export async function startClusterNode(
  databaseUrl: string,
  host = '127.0.0.1',
  differing: Partial<GatewayOptions> = {},
): Promise<Gateway> {
  const { first: port } = await freePorts(3);
  const gateway = await startGateway({
    ...{ dataDir: temporaryFolder(), domain: 'localhost', host, encryptionKey: CLUSTER_KEY },
    ...{ httpPort: port, httpsPort: port + 1, sessionPort: port + 2, nodeAddress: `${host}:${port + 1}` },
    databaseUrl,
    tcpPorts: { first: 20_000, last: 20_999 },
    log: silentLog,
    ...differing,
  });
  const close = closeOnce(() => gateway.close());
  return { ...gateway, close };
}
