import { callAgent } from '../agent/api-client.ts';
import { jsonText, print } from './output.ts';
import { agentSettings } from './settings-place.ts';

const DEADLINE_MS = 5000;

/**
 * Checks that the agent on this device is alive, for containers and scripts.
 *
 * @throws {OperatorError} exit code 3 when it does not answer
 */
export async function health({ json }: { json?: boolean }): Promise<void> {
  const answer = await callAgent(agentSettings('api'), 'GET /healthz', { deadlineMs: DEADLINE_MS });
  print(json ? jsonText(answer, 0) : 'alive');
}
