import { once } from 'node:events';
import { connect } from 'node:net';
import { reasonAway, type ServingGateway, SharedDatabase } from '../../gateway/offline/shared-database.ts';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { withDeadline } from '../../lib/time/deadline.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { failed, ok, type Result, skipped } from '../finding.ts';

/** Certificates, authtokens and histories have times of both clocks. */
const MAX_CLOCK_MS = 2_000;

/** Judges whether this gateway can use its shared database, and has all that is in it. */
export async function sharedDatabaseResults(settings: GatewayServerSettings): Promise<Result[]> {
  try {
    return await SharedDatabase.use(settings.databaseUrl ?? '', (shared) => judge(shared, settings));
  } catch (error) {
    const reason = reasonAway(error);
    if (reason !== null)
      return [failed(`cannot be used: ${reason}`, 'check GATEWAY_DATABASE_URL, its network and the server')];
    if (error instanceof OperatorError) return [failed(error.message, null)];
    throw error;
  }
}

async function judge(shared: SharedDatabase, settings: GatewayServerSettings): Promise<Result[]> {
  await shared.requireInUse();
  const { server, clockAheadMs } = await shared.facts();
  const seconds = Math.abs(Math.round(clockAheadMs / 1000));
  const clock =
    Math.abs(clockAheadMs) < MAX_CLOCK_MS
      ? ok('its clock agrees with this one')
      : failed(`its clock is ${seconds} s ${clockAheadMs > 0 ? 'ahead' : 'behind'}`, 'synchronize both clocks (NTP)');
  const prove = shared.proof(settings, () => Date.now() + clockAheadMs);
  const gateways = await shared.gateways();
  const others = await Promise.all(gateways.map((gateway) => gatewayResult(settings, gateway, prove)));
  const copy = await copyResults(settings, shared);
  return [ok(`PostgreSQL ${server} answers`), clock, ...copy, ...others.flat(), ...(await updateResults(shared))];
}

/** Longer than a gateway takes to drain, to try a version and to go back. */
const UPDATE_MS = 15 * 60_000;

/** What keeps gateways from updating themselves. */
async function updateResults(shared: SharedDatabase): Promise<Result[]> {
  const { turn, givenUp, now } = await shared.updates();
  const results: Result[] = [];
  if (turn !== null) {
    const { node: id, address, version, at } = turn;
    const said = `the gateway ${address} has been updating itself to version ${version} since ${at}`;
    const advice = `look at journalctl -u device-agent-update there; if its machine is lost: ${ownCommand(`gateway nodes remove ${id}`)}`;
    results.push(now - Date.parse(at) < UPDATE_MS ? ok(said) : failed(`${said}; the others wait`, advice));
  }
  if (givenUp !== null) {
    const { address, version, reason } = givenUp;
    const advice = `look at that gateway; a newer version, or ${ownCommand(`update --to ${version}`)} on one of them, ends this`;
    results.push(failed(`the gateway ${address} has given up version ${version}: ${reason}`, advice));
  }
  return results;
}

/** Milliseconds in which a gateway has to accept a connection. */
const CONNECT_MS = 2_000;

/** Whether gateways that serve together can pass connections on to each other. */
async function gatewayResult(
  { nodeAddress }: GatewayServerSettings,
  { id, address, alone }: ServingGateway,
  prove: ReturnType<SharedDatabase['proof']>,
): Promise<Result[]> {
  if (nodeAddress === null || alone) return [];
  const [, host = '', port = ''] = /^\[?(.*?)\]?:(\d+)$/.exec(address) ?? [];
  const socket = connect({ host, port: Number(port) });
  try {
    await withDeadline(once(socket, 'connect'), `connecting to ${address}`, CONNECT_MS);
    return [
      await prove({ id, host, port: Number(port) }).then(
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

async function copyResults(settings: GatewayServerSettings, shared: SharedDatabase): Promise<Result[]> {
  if (await shared.isUnused()) return [skipped('it is empty: the first start of a gateway fills it')];
  const copy = await shared.compareCopy(settings);
  if (copy === 'own')
    return [failed('DATA_DIR has a database of its own', `move it: ${ownCommand('gateway migrate')}`)];
  return [
    ok('the encryption key is the right one'),
    copy === 'same'
      ? ok('the copy in DATA_DIR is the same')
      : failed('the copy in DATA_DIR differs', 'restart the gateway, which compares it'),
  ];
}
