import type { TimesAway } from '../../agent-protocol/messages.ts';
import { OperatorError } from '../../lib/errors.ts';
import { AGENT_TIMES_AWAY_PATH } from '../../management/resources/history.ts';
import { isCloudAddress } from '../../settings/agent-settings.ts';
import { type ApiAccess, apiOf, postTo } from './gateway-calls.ts';

/** So that a request has less than the gateway accepts from agents. */
const SLOTS_AT_ONCE = 40;

/**
 * Tells a gateway, by its management API, when the agent ran without a session: for agents whose session cannot carry it.
 *
 * @returns whether there is nothing more to say: the gateway knows, or wants to know nothing
 * @throws any error when another attempt can succeed
 */
export async function reportAwayByApi(access: ApiAccess, { Now, Slots }: TimesAway): Promise<boolean> {
  // Embedded gateways keep no history.
  if (access.apiUrl !== null || isCloudAddress(access.serverAddr)) return true;
  try {
    const place = await apiOf(access);
    const { authtoken } = place;
    for (let at = 0; at < Slots.length; at += SLOTS_AT_ONCE) {
      const part = Slots.slice(at, at + SLOTS_AT_ONCE);
      await postTo(place, AGENT_TIMES_AWAY_PATH, { authtoken, Now, Slots: part });
    }
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
  }
  return true;
}
