import { callAgent } from '../agent/api-client.ts';
import { showHistory } from './history-text.ts';
import { agentSettings } from './settings-place.ts';

/**
 * Draws what has happened to a tunnel, or how the device was, in the last 24 hours.
 *
 * @param tunnel what names it; undefined: the device
 * @throws {OperatorError} exit code 3 when no agent answers, 4 when there is no such tunnel
 */
export async function showAgentHistory(tunnel: string | undefined, options: { json?: boolean }): Promise<void> {
  const settings = agentSettings('api');
  if (tunnel === undefined) showHistory('this device', await callAgent(settings, 'GET /history'), options);
  else showHistory(tunnel, await callAgent(settings, 'GET /tunnels/{url_part}/history', { url_part: tunnel }), options);
}
