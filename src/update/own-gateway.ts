import { join } from 'node:path';
import { type ApiPlace, apiOf, EnrolmentRefused, postTo } from '../agent/join/gateway-calls.ts';
import { GatewayTime } from '../agent/join/gateway-time.ts';
import { readInstallation } from '../agent/join/join-site.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { systemClock } from '../lib/time/clock.ts';
import {
  AGENT_UPDATES_PATH,
  AgentUpdateAnswer,
  type AgentUpdateReport,
  RELEASES_PATH,
} from '../management/resources/agent-update.ts';
import type { Host } from '../service/host.ts';
import { AGENT_SERVICE, configFolderOf, serviceEnvironment, stateFolderOf } from '../service/service.ts';
import { isCloudAddress, loadSettings } from '../settings/agent-settings.ts';
import { ENROLMENT_FILE } from '../settings/setting-sources.ts';
import { type ReleaseSource, serverSource } from './release-source.ts';

/** For so long, a gateway that is busy is asked again. */
const PATIENCE_MS = 600_000;
/** Of a gateway that is older than these routes. */
const NO_SUCH_PATH = 'ERR_GATEWAY_NO_SUCH_PATH';

/** The gateway of the agent's service, from which releases come, and which coordinates the updates of its devices. */
export class OwnGateway {
  private constructor(private readonly place: ApiPlace) {}

  /**
   * Finds the gateway, whose certificate is verified as when the device has joined.
   *
   * @param isNamed whether the settings of updates name it; else it counts only if the device has joined it
   * @returns null when there is none
   * @throws when it is unreachable, or is not the one that the device has joined
   */
  static async find(host: Host, isNamed: boolean): Promise<OwnGateway | null> {
    const enrolment = await enrolmentOf(host);
    if (enrolment === null && !isNamed) return null;
    const { gateway } = loadSettings(serviceEnvironment(AGENT_SERVICE, host), host.root + stateFolderOf(AGENT_SERVICE));
    if (gateway.kind === 'embedded' || isCloudAddress(gateway.serverAddr)) {
      if (!isNamed) return null;
      throw new OperatorError('no gateway to update from: this device uses none of your own; choose another --from', 2);
    }
    const time = new GatewayTime({ file: null, log: null });
    const place = await apiOf({ ...gateway, time, enrolment, apiUrl: null });
    return place.isJoined || isNamed ? new OwnGateway(place) : null;
  }

  /** The releases that its operator has approved. */
  get source(): ReleaseSource & { isMirror: true } {
    const { origin, trust, authtoken } = this.place;
    // A redirect would take the authtoken elsewhere.
    const asking = {
      trust,
      headers: { authorization: `Bearer ${authtoken}` },
      redirects: 0,
      patienceMs: PATIENCE_MS,
    };
    const url = new URL(`${origin}${RELEASES_PATH}/`);
    return { ...serverSource(url, `the gateway (${url.href})`, asking), isMirror: true };
  }

  /** Says what the device does, and asks whether it may. @throws when the gateway does not answer */
  async tell(report: Omit<AgentUpdateReport, 'authtoken'>): Promise<AgentUpdateAnswer> {
    try {
      const { authtoken } = this.place;
      return AgentUpdateAnswer.parse(await postTo(this.place, AGENT_UPDATES_PATH, { ...report, authtoken }));
    } catch (error) {
      const isOlder = error instanceof EnrolmentRefused && error.code === NO_SUCH_PATH;
      if (isOlder) return { decision: 'go', reason: null, retry_after_s: null };
      throw error;
    }
  }
}

/** The file of the enrolment of the service's device; null: it has not joined. */
async function enrolmentOf(host: Host): Promise<string | null> {
  for (const folderOf of [configFolderOf, stateFolderOf]) {
    const file = join(host.root + folderOf(AGENT_SERVICE), ENROLMENT_FILE);
    if ((await readInstallation(file))?.device) return file;
  }
  return null;
}

/**
 * Asks the device's gateway whether it may install a version.
 *
 * @param isAutomatic an automatic update waits, also when the gateway does not answer; else the device only warns
 * @param tell takes a line about what speaks against it
 * @throws {OperatorError} when an automatic update has to wait
 */
export async function askGateway(
  gateway: () => Promise<OwnGateway | null>,
  report: Pick<AgentUpdateReport, 'version' | 'state'>,
  isAutomatic: boolean,
  tell: (line: string) => void,
): Promise<void> {
  for (const end = systemClock.now() + PATIENCE_MS; ; ) {
    const answer = await gateway()
      .then((found) => found?.tell(report))
      .catch((error: unknown) => ({
        decision: 'stop',
        reason: `the gateway of this device cannot be asked: ${messageOf(error)}`,
        retry_after_s: null,
      }));
    if (answer === undefined || answer.decision === 'go') return;
    if (!isAutomatic) return tell(`warning: ${answer.reason}`);
    const waitMs = 1000 * (answer.retry_after_s ?? Number.POSITIVE_INFINITY);
    if (systemClock.now() + waitMs > end) throw new OperatorError(`update postponed: ${answer.reason}`);
    await systemClock.sleep(waitMs);
  }
}

const TELL_TRIES = 5;
const TELL_AGAIN_MS = 10_000;

/** Tells the device's gateway how an update has ended, if it can be reached soon. */
export async function tellGateway(
  host: Host,
  report: Omit<AgentUpdateReport, 'authtoken'>,
  tell: (line: string) => void,
): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await (await OwnGateway.find(host, false))?.tell(report);
      return;
    } catch (error) {
      if (tries === TELL_TRIES) return tell(`the gateway was not told how the update ended: ${messageOf(error)}`);
    }
    await systemClock.sleep(TELL_AGAIN_MS);
  }
}
