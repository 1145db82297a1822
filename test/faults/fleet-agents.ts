import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { type Agent, startAgent } from '../../src/agent/agent.ts';
import { createLog } from '../../src/lib/log/log.ts';
import { loadSettings } from '../../src/settings/agent-settings.ts';

/** Argument of a process that runs many agents, as JSON. */
export interface Crew {
  /** Each agent's working folder, its tunnels persisted below. */
  folders: string[];
  /** Settings of all of them. */
  env: Record<string, string>;
}

/** Several devices' agents in one process, each complete; they write to one log, and end with SIGTERM. */
const { folders, env } = JSON.parse(process.argv[2] ?? '') as Crew;
const log = await createLog('info', 'json');
const agents: Agent[] = [];
for (const [index, folder] of folders.entries()) {
  mkdirSync(folder, { recursive: true });
  const settings = loadSettings({ ...env, DATA_DIR: join(folder, 'data') }, folder);
  agents.push(await startAgent(settings, log.child({ agent: index })));
}
process.once('SIGTERM', () => void Promise.all(agents.map((agent) => agent.stop())).then(() => process.exit(0)));
