import { apiAddress, callAgent, type ListedTunnel, type StatusReport } from '../agent/api-client.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { isDataFolderHeld } from '../lib/files/data-folder.ts';
import { rootCommand } from '../lib/process/own-command.ts';
import { durationText } from '../lib/terminal-text.ts';
import type { Settings } from '../settings/agent-settings.ts';
import { type Check, failed, ok, type Result, skipped } from './finding.ts';

/** What is known about an agent that is already running. */
export interface RunningAgent {
  /** Whether a process holds the data folder; null: this user may not read it. */
  holdsFolder: boolean | null;
  /** Address of the local API; null when the settings leave its port open. */
  address: string | null;
  /** The response of the agent's API; null when unreachable. */
  status: StatusReport | null;
  /** Why the status is unknown. */
  problem: string | null;
}

const ASK_MS = 3_000;

/** Looks for an agent that holds the data folder or answers at the local API's address. */
export async function findRunningAgent(settings: Settings, patience: number): Promise<RunningAgent> {
  const holdsFolder = await isDataFolderHeld(settings.dataDir).catch(() => null); // unreadable
  if (settings.api.port === 0) {
    return { holdsFolder, address: null, status: null, problem: 'its port is unknown with AGENT_PORT=0' };
  }
  const address = apiAddress(settings);
  try {
    const status = await callAgent(settings, 'GET /status', { deadlineMs: ASK_MS * patience });
    return { holdsFolder, address, status, problem: null };
  } catch (error) {
    const reason = error instanceof OperatorError && error.cause !== undefined ? error.cause : error;
    return { holdsFolder, address, status: null, problem: `${address}: ${messageOf(reason)}` };
  }
}

/** The tunnels of a running agent, with their states. */
export function liveTunnels(settings: Settings, patience: number): Promise<ListedTunnel[]> {
  return callAgent(settings, 'GET /tunnels', { deadlineMs: ASK_MS * patience });
}

/** Reports a running agent, and a conflict between two agents. */
export function runningAgentCheck(agent: Promise<RunningAgent>, dataDir: string): Check {
  return { name: 'agent', title: 'Agent', run: async () => judge(await agent, dataDir) };
}

function judge({ holdsFolder, address, status, problem }: RunningAgent, dataDir: string): Result {
  if (status && holdsFolder === false) {
    return failed(
      `an agent with a different data folder answers at ${address}`,
      `to check that agent, run this as its user with its settings, or ${rootCommand('doctor --service')}; ` +
        'otherwise set AGENT_PORT to another port',
    );
  }
  if (status) return ok(`version ${status.version} has been running for ${durationText(status.uptime_seconds)}`);
  if (holdsFolder === null) return skipped(`cannot read ${dataDir}; run this as the agent's user`);
  if (!holdsFolder) return ok('not running on this data folder');
  if (address === null) return skipped(`running on this data folder; ${problem}`);
  return failed(
    `running on ${dataDir}, but its API is unreachable: ${problem}`,
    'restart it if its settings changed or it hangs; otherwise run this with its settings',
  );
}
