import { join } from 'node:path';
import { type Gateway, startGateway } from '../../gateway/gateway.ts';
import { OperatorError } from '../../lib/errors.ts';
import { openDataFolder } from '../../lib/files/data-folder.ts';
import { createFolder } from '../../lib/files/durable-write.ts';
import { createLog, type Log } from '../../lib/log/log.ts';
import { hostPort } from '../../lib/network/ip-address.ts';
import { type HeldSocket, heldSockets, isAt } from '../../lib/network/listen.ts';
import { describePortRange } from '../../lib/network/port-range.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { startError } from '../../lib/process/start-error.ts';
import { GATEWAY_SERVICE } from '../../service/service.ts';
import type { SupervisedProgram } from '../../service/service-report.ts';
import { takeListenFds } from '../../settings/common-settings.ts';
import {
  type GatewayServerSettings,
  gatewayListeners,
  loadGatewayServerSettings,
} from '../../settings/gateway-settings.ts';
import { logSettingSources } from '../../settings/parse-settings.ts';
import { note } from '../output.ts';
import { requireNoService } from '../settings-place.ts';
import { endOnUnexpectedError, runUntilStopped, serviceReport } from '../until-stopped.ts';
import { settingsForBackup } from './settings-text.ts';

const INSTALL = 'sudo device-agent service install --gateway';
/** Milliseconds before a slow stop ends the process: clients have 6.5 s, and containers 10 s. */
const STOP_DEADLINE_MS = 9_500;

/** Runs a standalone gateway until SIGTERM or SIGINT. */
export async function runGateway(): Promise<void> {
  requireNoService(GATEWAY_SERVICE);
  const settings = loadGatewayServerSettings();
  const held = heldSockets(takeListenFds());
  requireNamed(held, gatewayListeners(settings));
  const log = await createLog(settings.log.level, settings.log.format);
  logSettingSources(log, note);
  logNotHeld(held, gatewayListeners(settings), log);
  endOnUnexpectedError(log);
  const folder = await openDataFolder(settings.dataDir);
  try {
    const gateway = await start(settings, held, log);
    announce(gateway, settings, log);
    const report = await serviceReport(programOf(gateway), log);
    const stop = async () => {
      await Promise.all([report?.stop(), gateway.finish()]);
      await gateway.close();
      await folder.release();
    };
    runUntilStopped({ stop }, log, STOP_DEADLINE_MS);
    await report?.start();
  } catch (error) {
    await folder.release();
    throw error;
  }
}

/** @throws {OperatorError} for a socket of systemd that no setting names: its clients would wait forever */
function requireNamed(held: readonly HeldSocket[], listeners: ReturnType<typeof gatewayListeners>): void {
  const stray = held.find((socket) => !listeners.some((each) => isAt(socket, each)));
  if (stray === undefined) return;
  const named = listeners.map(({ setting, host, port }) => `${hostPort(host, port)} (${setting})`).join(', ');
  throw new OperatorError(
    `systemd holds a socket at ${hostPort(stray.host, stray.port)}, but the settings name ${named}: run ${INSTALL}, which updates the socket unit`,
  );
}

/** Such a port is closed while the process is replaced. */
function logNotHeld(held: readonly HeldSocket[], listeners: ReturnType<typeof gatewayListeners>, log: Log): void {
  const settings = listeners.filter((each) => !held.some((socket) => isAt(socket, each))).map(({ setting }) => setting);
  if (held.length > 0 && settings.length > 0) log.warn({ settings, command: INSTALL }, 'port not held by systemd');
}

async function start(settings: GatewayServerSettings, held: readonly HeldSocket[], log: Log): Promise<Gateway> {
  const folder = join(settings.dataDir, 'gateway');
  try {
    await createFolder(folder, 0o755);
    const onRemoved = (reason: string | null) => {
      if (reason === null) log.fatal('removed from the shared database, for another gateway to serve it; exiting');
      else log.fatal({ reason }, 'shared database not served by this gateway; exiting');
      process.exit(1);
    };
    return await startGateway({
      ...settings,
      heldSockets: held,
      settings: settingsForBackup(settings),
      log,
      onRemoved,
    });
  } catch (error) {
    const addressAdvice = 'set GATEWAY_HOST and GATEWAY_DNS_HOST to addresses of this machine';
    const portSettings = 'GATEWAY_HTTPS_PORT, GATEWAY_HTTP_PORT and GATEWAY_SESSION_PORT';
    throw startError(error, { what: 'the gateway', portSettings, addressAdvice, folder });
  }
}

/** A gateway only answers requests: it makes progress as long as its event loop runs. */
function programOf({ httpsPort, sessionAddress }: Gateway): SupervisedProgram {
  return { describe: () => `serving on port ${httpsPort}, agents at ${sessionAddress}`, silentMs: () => 0 };
}

function announce(gateway: Gateway, { tcpPorts, httpsPorts, ip }: GatewayServerSettings, log: Log): void {
  const { sessionAddress, httpsPort, httpPort, caFile, apiUrl, sessions } = gateway;
  const { sessions: max_sessions, limitedBy: limited_by } = sessions.room;
  const tcp = tcpPorts && `${tcpPorts.first}-${tcpPorts.last}`;
  const https_ports = ip && httpsPorts && describePortRange(httpsPorts);
  const ports = { https: httpsPort, http: httpPort, tcp, https_ports };
  log.info(
    { agents: sessionAddress, ...ports, api: apiUrl, ca: caFile, max_sessions, limited_by },
    'gateway listening',
  );
  if (gateway.store.apiKeys.page(null, 1).length > 0) return;
  log.info({ command: ownCommand('gateway api-key create --description laptop') }, 'no API key yet; create one');
}
