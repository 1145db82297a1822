import { messageOf } from '../lib/errors.ts';
import type { Host } from '../service/host.ts';
import { GATEWAY_SERVICE, serviceEnvironment, stateFolderOf } from '../service/service.ts';
import { loadGatewayServerSettings } from '../settings/gateway-settings.ts';
import { ServiceOnTrial } from './service-on-trial.ts';
import type { AgentView } from './trial.ts';
import type { Outcome } from './update-records.ts';

const ASK_MS = 10_000;

/** What depends on the program alone. Conditions, names and certificates change without it. */
const ESSENTIALS = ['node', 'settings', 'data-folder', 'database', 'ca', 'ports'];

/** The gateway's service on this machine, as an update sees and restarts it. */
export class GatewayService extends ServiceOnTrial {
  readonly unit = `${GATEWAY_SERVICE.name}.service`;
  protected readonly doctor = { command: ['gateway', 'doctor', '--json'], essentials: ESSENTIALS };

  async look(): Promise<AgentView> {
    const restarts = await this.restarts();
    try {
      // Its code is not there where only agents run.
      const { askGatewayHere } = await import('../gateway/offline/gateway-here.ts');
      const told = await askGatewayHere(settingsOfGateway(this.host), ASK_MS);
      if ('conditions' in told) {
        const { version, sessions } = told;
        return { version, online: version !== null, tunnels: [], sessions, restarts };
      }
    } catch {
      // The gateway's own log says why; here, it only counts that nobody can use it.
    }
    return { version: null, online: false, tunnels: [], sessions: 0, restarts };
  }
}

/** Has the gateway of this machine show that its update failed. */
export async function recordFailedUpdate(
  host: Host,
  { result, ...facts }: Outcome & { isGivenUp: boolean },
  tell: (line: string) => void,
): Promise<void> {
  if (result === 'confirmed') return;
  try {
    const { noteFailedUpdate, withStore } = await import('../gateway/offline/command-store.ts');
    await withStore(settingsOfGateway(host), ({ database }) =>
      database.write(() => noteFailedUpdate(database, { result, ...facts }), null),
    );
  } catch (error) {
    // The database of a newer version that stays, for example.
    tell(`the gateway was not told how its update ended: ${messageOf(error)}`);
  }
}

/** The settings of the gateway's service. @throws {OperatorError} when they are not valid */
export function settingsOfGateway(host: Host) {
  return loadGatewayServerSettings(
    serviceEnvironment(GATEWAY_SERVICE, host),
    host.root + stateFolderOf(GATEWAY_SERVICE),
  );
}
