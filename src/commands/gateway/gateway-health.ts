import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { connect as connectTls } from 'node:tls';
import { apiHost } from '../../gateway/endpoints/domain-names.ts';
import { EXIT_UNREACHABLE, messageOf, OperatorError } from '../../lib/errors.ts';
import { hostPort, isUnspecified } from '../../lib/network/ip-address.ts';
import { connectHere } from '../../lib/network/load-balancers.ts';
import { GATEWAY_SERVICE } from '../../service/service.ts';
import { show } from '../output.ts';
import { gatewaySettings, startAdvice } from '../settings-place.ts';

const DEADLINE_MS = 5000;

/**
 * Checks that the gateway on this machine is alive, for containers and scripts. Any response of its management API will
 * do.
 *
 * @throws {OperatorError} exit code 3 when it does not answer
 */
export async function gatewayHealth(options: { json?: boolean }): Promise<void> {
  const { host, domain, httpsPort, balancers } = gatewaySettings('api');
  const name = apiHost(domain);
  const place = { host: isUnspecified(host) ? 'localhost' : host, port: httpsPort };
  const asked = request({
    headers: { host: name },
    // Any certificate will do: another program on this machine that answers instead could also stop the gateway.
    createConnection: () =>
      connectTls({ socket: connectHere(place, balancers), servername: name, rejectUnauthorized: false }),
    signal: AbortSignal.timeout(DEADLINE_MS),
  });
  try {
    const [answer] = (await once(asked.end(), 'response')) as [IncomingMessage];
    answer.destroy();
  } catch (error) {
    throw new OperatorError(
      `gateway unreachable at ${hostPort(place.host, place.port)}: ${messageOf(error)}; ${await startAdvice(GATEWAY_SERVICE)}`,
      EXIT_UNREACHABLE,
    );
  }
  show({ status: 'alive' }, options, ({ status }) => status);
}
