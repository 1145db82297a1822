import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { type Agent, startAgent } from '../../src/agent/agent.ts';
import { joinAtFirstStart } from '../../src/agent/join/join-site.ts';
import { Limiter } from '../../src/lib/limiter.ts';
import { createLog } from '../../src/lib/log/log.ts';
import { loadSettings } from '../../src/settings/agent-settings.ts';
import { loadFirstStart } from '../../src/settings/first-start-settings.ts';

/** Argument of a process that runs many agents, as JSON. */
export interface Crew {
  /** Each agent's working folder, its tunnels persisted below. */
  folders: string[];
  /** Settings of all of them. */
  env: Record<string, string>;
  /** With which they join a site first. */
  code?: string;
}

/** Agents that join at the same time. */
const JOINING = 8;

/** Several devices' agents in one process, each complete; they write to one log, and end with SIGTERM. */
const { folders, env, code } = JSON.parse(process.argv[2] ?? '') as Crew;
const log = await createLog('info', 'json');
const agents: Agent[] = [];

/** Starts an agent, after it has joined if there is a code. */
async function start(folder: string, index: number): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const own = log.child({ agent: index });
  const place = { ...env, DATA_DIR: join(folder, 'data') };
  const first = code === undefined ? null : loadFirstStart({ ...place, AGENT_JOIN_CODE: code }, folder);
  if (first !== null) await joinAtFirstStart(first, own);
  agents.push(await startAgent(loadSettings(place, folder), own));
}

const limiter = new Limiter(code === undefined ? 1 : JOINING);
await Promise.all(folders.map((folder, index) => limiter.run(() => start(folder, index))));
process.once('SIGTERM', () => void Promise.all(agents.map((agent) => agent.stop())).then(() => process.exit(0)));
