import { askGatewayHere } from '../../gateway/offline/command-store.ts';
import { messageOf } from '../../lib/errors.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { failed, NotKnown, ok, type Result } from '../finding.ts';

const ASK_MS = 4_000;
/** Of which other checks find more, also without a running gateway; devices that are offline are no fault of the gateway. */
const CHECKED_APART = ['own_certificate', 'domain_certificate', 'event_destination', 'device_offline'];

/** What the gateway that runs on this machine says is wrong. It is asked without a change: its disk may be full. */
export async function conditionResults(settings: GatewayServerSettings, patience: number): Promise<Result | Result[]> {
  const { databaseUrl, nodeAddress } = settings;
  const answer = await askGatewayHere(settings, ASK_MS * patience).catch((error: unknown) => {
    return failed(`its management API does not answer: ${messageOf(error)}`, "see the gateway's log; restart it");
  });
  if ('advice' in answer) return answer;
  if (!('conditions' in answer)) throw new NotKnown(`the running gateway does not say (${answer.status}): restart it`);
  const present = answer.conditions.filter(({ id }) => !CHECKED_APART.includes(id));
  const ownName = nodeAddress ?? 'this gateway';
  if (present.length === 0) {
    const others = databaseUrl === null ? '' : `; ${ownName} alone was asked`;
    return ok(`the running gateway reports no problem${others}`);
  }
  const whose = databaseUrl === null ? '' : `${ownName}: `;
  return present.map(({ message, remedy }) => failed(whose + message, remedy));
}
