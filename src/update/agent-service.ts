import { callAgent } from '../agent/api-client.ts';
import { AGENT_SERVICE, serviceEnvironment, stateFolderOf } from '../service/service.ts';
import { loadSettings } from '../settings/agent-settings.ts';
import { ServiceOnTrial } from './service-on-trial.ts';
import type { AgentView } from './trial.ts';

const ASK_MS = 10_000;

/** What depends on the program alone; upstreams and names are others' affairs. */
const ESSENTIALS = [
  'node',
  'settings',
  'default-policies',
  'data-folder',
  'tunnels-file',
  'agent',
  'ports',
  'authtoken',
  'acl',
];

/** The agent's service on this machine, as an update sees and restarts it. */
export class AgentService extends ServiceOnTrial {
  readonly unit = `${AGENT_SERVICE.name}.service`;
  protected readonly doctor = { command: ['doctor', '--service', '--json'], essentials: ESSENTIALS };

  async look(): Promise<AgentView> {
    const restarts = await this.restarts();
    try {
      // Each time: the settings may have been wrong before.
      const settings = loadSettings(serviceEnvironment(AGENT_SERVICE, this.host), stateFolderOf(AGENT_SERVICE));
      const { version, session } = await callAgent(settings, 'GET /status', { deadlineMs: ASK_MS });
      const tunnels = await callAgent(settings, 'GET /tunnels', { deadlineMs: ASK_MS });
      const online = tunnels.filter(({ status }) => status === 'online' || status === 'degraded');
      const urls = online.map(({ url }) => url);
      return { version, online: session.state === 'online', tunnels: urls, sessions: 0, restarts };
    } catch {
      // The agent's own log says why; here, it only counts that nobody can use it.
      return { version: null, online: false, tunnels: [], sessions: 0, restarts };
    }
  }
}
