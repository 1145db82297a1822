import { join } from 'node:path';
import { openDataFolder } from '../../agent/folders/data-folder.ts';
import { type Gateway, startGateway } from '../../gateway/gateway.ts';
import { createFolder } from '../../lib/files/durable-write.ts';
import { createLog, type Log } from '../../lib/log/log.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { startError } from '../../lib/process/start-error.ts';
import { GATEWAY_SERVICE } from '../../service/service.ts';
import type { SupervisedProgram } from '../../service/service-report.ts';
import { type GatewayServerSettings, loadGatewayServerSettings } from '../../settings/gateway-settings.ts';
import { logSettings } from '../../settings/parse-settings.ts';
import { note } from '../output.ts';
import { requireNoService } from '../settings-place.ts';
import { endOnUnexpectedError, runUntilStopped, serviceReport } from '../until-stopped.ts';
import { settingsForBackup } from './settings-text.ts';

/** Runs a standalone gateway until SIGTERM or SIGINT. */
export async function runGateway(): Promise<void> {
  requireNoService(GATEWAY_SERVICE);
  const settings = loadGatewayServerSettings();
  const log = await createLog(settings.log.level, settings.log.format);
  logSettings(log, note);
  endOnUnexpectedError(log);
  const folder = await openDataFolder(settings.dataDir);
  try {
    const gateway = await start(settings, log);
    announce(gateway, settings, log);
    const report = await serviceReport(programOf(gateway), log);
    const stop = async () => {
      await Promise.all([report?.stop(), gateway.close()]);
      await folder.release();
    };
    runUntilStopped({ stop }, log);
    await report?.start();
  } catch (error) {
    await folder.release();
    throw error;
  }
}

async function start(settings: GatewayServerSettings, log: Log): Promise<Gateway> {
  const folder = join(settings.dataDir, 'gateway');
  try {
    await createFolder(folder, 0o755);
    const onRemoved = (reason: string | null) => {
      if (reason === null) log.fatal('removed from the shared database, for another gateway to serve it; exiting');
      else log.fatal({ reason }, 'shared database not served by this gateway; exiting');
      process.exit(1);
    };
    return await startGateway({ ...settings, settings: settingsForBackup(settings), log, onRemoved });
  } catch (error) {
    const portSettings = 'GATEWAY_HTTPS_PORT, GATEWAY_HTTP_PORT and GATEWAY_SESSION_PORT';
    throw startError(error, { what: 'the gateway', portSettings, folder });
  }
}

/** A gateway only answers requests: it makes progress as long as its event loop runs. */
function programOf({ httpsPort, sessionAddress }: Gateway): SupervisedProgram {
  return { describe: () => `serving on port ${httpsPort}, agents at ${sessionAddress}`, silentMs: () => 0 };
}

function announce(gateway: Gateway, { tcpPorts }: GatewayServerSettings, log: Log): void {
  const { sessionAddress, httpsPort, httpPort, caFile, apiUrl } = gateway;
  const tcp = tcpPorts && `${tcpPorts.first}-${tcpPorts.last}`;
  const addresses = { agents: sessionAddress, https: httpsPort, http: httpPort, tcp, api: apiUrl, ca: caFile };
  log.info(addresses, 'gateway listening');
  if (gateway.store.apiKeys.page(null, 1).length > 0) return;
  log.info({ command: ownCommand('gateway api-key create --description laptop') }, 'no API key yet; create one');
}
