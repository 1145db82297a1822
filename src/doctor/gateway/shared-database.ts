import { once } from 'node:events';
import { connect } from 'node:net';
import { type NodeAsker, nodeAsker } from '../../gateway/edge/relays/remote-endpoints.ts';
import { apiHost } from '../../gateway/endpoints/domain-names.ts';
import { openGatewayDatabase, requireSameKey } from '../../gateway/store/open-gateway-store.ts';
import { isSameSoon } from '../../gateway/store/shared/join-shared.ts';
import { movedAway, type Node, Postgres } from '../../gateway/store/shared/postgres.ts';
import { DatabaseAway } from '../../gateway/store/sql/database-problems.ts';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { parseKey, SecretsBox } from '../../lib/secrets-box.ts';
import { withDeadline } from '../../lib/time/deadline.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { failed, ok, type Result, skipped } from '../finding.ts';

/** Certificates, authtokens and histories have times of both clocks. */
const MAX_CLOCK_MS = 2_000;

/** Judges whether this gateway can use its shared database, and has all that is in it. */
export async function sharedDatabaseResults(settings: GatewayServerSettings): Promise<Result[]> {
  const postgres = new Postgres(settings.databaseUrl ?? '');
  try {
    await postgres.prepare();
    if (await postgres.isEnded()) throw movedAway();
    const { server, clockAheadMs } = await postgres.facts();
    const seconds = Math.abs(Math.round(clockAheadMs / 1000));
    const clock =
      Math.abs(clockAheadMs) < MAX_CLOCK_MS
        ? ok('its clock agrees with this one')
        : failed(`its clock is ${seconds} s ${clockAheadMs > 0 ? 'ahead' : 'behind'}`, 'synchronize both clocks (NTP)');
    const ask = asker(settings, () => Date.now() + clockAheadMs);
    const others = await Promise.all((await postgres.nodes()).map((node) => nodeResult(settings, node, ask)));
    return [ok(`PostgreSQL ${server} answers`), clock, ...(await copyResults(settings, postgres)), ...others.flat()];
  } catch (error) {
    if (error instanceof DatabaseAway)
      return [failed(`cannot be used: ${error.reason}`, 'check GATEWAY_DATABASE_URL, its network and the server')];
    if (error instanceof OperatorError) return [failed(error.message, null)];
    throw error;
  } finally {
    await postgres.close();
  }
}

/** Milliseconds in which a gateway has to accept a connection. */
const CONNECT_MS = 2_000;

/** Asks a gateway something that it answers to those of its cluster only. */
function asker({ encryptionKey, domain }: GatewayServerSettings, now: () => number): NodeAsker {
  const box = new SecretsBox(parseKey(encryptionKey ?? '', 'GATEWAY_ENCRYPTION_KEY'));
  return nodeAsker('doctor', box, apiHost(domain), now);
}

/** Whether gateways that serve together can pass connections on to each other. */
async function nodeResult(
  { nodeAddress }: GatewayServerSettings,
  { id, address, alone }: Node,
  ask: NodeAsker,
): Promise<Result[]> {
  if (nodeAddress === null || alone) return [];
  const [, host = '', port = ''] = /^\[?(.*?)\]?:(\d+)$/.exec(address) ?? [];
  const socket = connect({ host, port: Number(port) });
  try {
    await withDeadline(once(socket, 'connect'), `connecting to ${address}`, CONNECT_MS);
    return [
      await ask({ id, host, port: Number(port) }, 'counted').then(
        () => ok(`the gateway ${address} can be reached`),
        (error: unknown) =>
          failed(
            `what answers at ${address} does not prove to be the gateway ${id}: ${messageOf(error)}`,
            'check its GATEWAY_NODE_ADDRESS, its log, and that all gateways have the same GATEWAY_ENCRYPTION_KEY',
          ),
      ),
    ];
  } catch (error) {
    const advice = `check that it runs and the network; if it is lost: ${ownCommand(`gateway nodes remove ${id}`)}`;
    return [failed(`the gateway ${address} cannot be reached: ${messageOf(error)}`, advice)];
  } finally {
    socket.destroy();
  }
}

/** Opening the database of a running gateway changes nothing in it. */
async function copyResults(settings: GatewayServerSettings, postgres: Postgres): Promise<Result[]> {
  if ((await postgres.head()) === null) return [skipped('it is empty: the first start of a gateway fills it')];
  const database = openGatewayDatabase(settings);
  try {
    if (!database.isReplica)
      return [failed('DATA_DIR has a database of its own', `move it: ${ownCommand('gateway migrate')}`)];
    requireSameKey(database, new SecretsBox(parseKey(settings.encryptionKey ?? '', 'GATEWAY_ENCRYPTION_KEY')));
    const isSame = await isSameSoon(database.replicaParts(), postgres);
    return [
      ok('the encryption key is the right one'),
      isSame
        ? ok('the copy in DATA_DIR is the same')
        : failed('the copy in DATA_DIR differs', 'restart the gateway, which compares it'),
    ];
  } finally {
    database.close();
  }
}
