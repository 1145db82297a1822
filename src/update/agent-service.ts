import { readFile } from 'node:fs/promises';
import { uptime } from 'node:os';
import { z } from 'zod';
import { callAgent } from '../agent/api-client.ts';
import { hasErrno, messageOf } from '../lib/errors.ts';
import type { Host } from '../service/host.ts';
import { AGENT_SERVICE, serviceEnvironment, stateFolderOf } from '../service/service.ts';
import type { ProgramPaths } from '../service/unit.ts';
import { loadSettings } from '../settings/agent-settings.ts';
import type { AgentView } from './trial.ts';
import { CRASHES } from './units.ts';
import type { Before, Moment } from './update-records.ts';

const UNIT = `${AGENT_SERVICE.name}.service`;
const ASK_MS = 10_000;

/** The agent's service on this machine, as an update sees and restarts it. systemd is the only one that starts an agent. */
export class AgentService {
  /** @param paths of the installed version */
  constructor(
    private readonly host: Host,
    private readonly paths: ProgramPaths,
  ) {}

  async stop(): Promise<void> {
    await this.host.run('systemctl', 'stop', UNIT);
  }

  /** A unit that fails to start is no error here. */
  async start(): Promise<void> {
    await this.host.run('systemctl', 'start', '--no-block', UNIT);
  }

  async look(): Promise<AgentView> {
    const restarts = Number(await this.host.run('systemctl', 'show', '--value', '--property=NRestarts', UNIT));
    try {
      // Each time: the settings may have been wrong before.
      const settings = loadSettings(serviceEnvironment(AGENT_SERVICE, this.host), stateFolderOf(AGENT_SERVICE));
      const { version, session } = await callAgent(settings, 'GET /status', { deadlineMs: ASK_MS });
      const tunnels = await callAgent(settings, 'GET /tunnels', { deadlineMs: ASK_MS });
      const online = tunnels.filter(({ status }) => status === 'online' || status === 'degraded');
      return { version, online: session.state === 'online', tunnels: online.map(({ url }) => url), restarts };
    } catch {
      // The agent's own log says why; here, it only counts that nobody can use it.
      return { version: null, online: false, tunnels: [], restarts };
    }
  }

  /** What works now, and has to work after an update. */
  async before(): Promise<Before> {
    const { online, tunnels } = await this.look();
    const failed = (await this.#failedChecks()).map(({ check }) => check);
    return { online, tunnels: [...tunnels], failed };
  }

  async essentials(known: readonly string[]): Promise<string | null> {
    try {
      const broken = (await this.#failedChecks()).find(({ check }) => !known.includes(check));
      return broken === undefined ? null : `doctor: ${broken.title}: ${broken.detail}`;
    } catch (error) {
      return `doctor: ${messageOf(error)}`;
    }
  }

  async #failedChecks(): Promise<Finding[]> {
    const { node, cli } = this.paths;
    // It exits with 1 when a check fails, whichever.
    const text = await this.host.run('sh', '-c', '"$0" "$1" doctor --service --json || [ $? = 1 ]', node, cli);
    const { findings } = Report.parse(JSON.parse(text));
    return findings.filter(({ check, status }) => status === 'failed' && ESSENTIALS.includes(check));
  }

  /** How many seconds ago the agent crashed, each time since the boot. */
  async crashes(): Promise<number[]> {
    const lines = await readFile(`${this.host.root}${CRASHES}`, 'utf8').catch((error: unknown) => {
      if (hasErrno(error, 'ENOENT')) return '';
      throw error;
    });
    return lines
      .split('\n')
      .filter(Boolean)
      .map((seconds) => uptime() - Number(seconds));
  }
}

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

const Finding = z.object({ check: z.string(), title: z.string(), status: z.string(), detail: z.string() });
type Finding = z.infer<typeof Finding>;
const Report = z.object({ findings: z.array(Finding) });

/** This point in time. */
export async function thisMoment(): Promise<Moment> {
  const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8');
  return { boot: boot.trim(), uptime: uptime(), wall: Date.now() };
}
