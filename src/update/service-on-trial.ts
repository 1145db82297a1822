import { readFile } from 'node:fs/promises';
import { uptime } from 'node:os';
import { z } from 'zod';
import { hasErrno, messageOf } from '../lib/errors.ts';
import type { Host } from '../service/host.ts';
import type { ProgramPaths } from '../service/unit.ts';
import type { AgentView, TrialMachine } from './trial.ts';
import { CRASHES } from './units.ts';
import type { Before, Moment } from './update-records.ts';

/** A service of the program that is updated. */
export abstract class ServiceOnTrial {
  abstract readonly unit: string;
  /** The doctor of the service, as its arguments, and those of its checks that depend on the program alone. */
  protected abstract readonly doctor: { command: readonly string[]; essentials: readonly string[] };

  /** @param paths of the installed version */
  constructor(
    protected readonly host: Host,
    private readonly paths: ProgramPaths,
  ) {}

  abstract look(): Promise<AgentView>;

  /** Moves elsewhere what the service serves, as far as that is possible, before it is stopped. */
  async empty(): Promise<void> {}

  /** What works now, and has to work after an update. */
  async before(): Promise<Before> {
    const { online, tunnels, sessions, ownAgents = 0 } = await this.look();
    const failed = (await this.#failed()).map((each) => this.#idOf(each));
    return { online, tunnels: [...tunnels], sessions, ownAgents, failed };
  }

  /** What the doctor of the installed version finds broken; null: nothing. @param known those that were broken before */
  async essentials(known: readonly string[]): Promise<string | null> {
    const broken = (await this.#failed()).find((each) => !known.includes(this.#idOf(each)));
    return broken === undefined ? null : `${this.#name}: ${broken.title}: ${broken.detail}`;
  }

  /** How often the process has ended since the last start of the service. */
  protected async restarts(): Promise<number> {
    return Number(await this.host.run('systemctl', 'show', '--value', '--property=NRestarts', this.unit));
  }

  get #name(): string {
    return this.doctor.command.filter((word) => !word.startsWith('-')).join(' ');
  }

  /** Those of the agent were alone once, and have no prefix. */
  #idOf({ check }: Finding): string {
    return this.#name === 'doctor' ? check : `${this.#name} ${check}`;
  }

  async #failed(): Promise<Finding[]> {
    const { node, cli } = this.paths;
    const { command, essentials } = this.doctor;
    // It exits with 1 when a check fails, whichever.
    const text = await this.host.run('sh', '-c', '"$@" || [ $? = 1 ]', 'sh', node, cli, ...command);
    const { findings } = Report.parse(JSON.parse(text));
    return findings.filter(({ check, status }) => status === 'failed' && essentials.includes(check));
  }
}

const Finding = z.object({ check: z.string(), title: z.string(), status: z.string(), detail: z.string() });
type Finding = z.infer<typeof Finding>;
const Report = z.object({ findings: z.array(Finding) });

/** All services of the program, which are updated together. systemd is the only one that starts them. */
export class ServicesOnTrial {
  /** @param services in the order of their start: the gateway comes before the agent, which may be one of its own */
  constructor(
    private readonly services: readonly ServiceOnTrial[],
    private readonly host: Host,
  ) {}

  async stop(): Promise<void> {
    // An agent of the same machine stays online meanwhile.
    for (const service of this.services) await service.empty();
    for (const { unit } of this.services.toReversed()) await this.host.run('systemctl', 'stop', unit);
    // Otherwise, a look right after the next start may count restarts of the version before. systemd may have forgotten the unit.
    for (const { unit } of this.services) {
      await this.host.run('sh', '-c', 'systemctl reset-failed "$0" 2> /dev/null || true', unit);
    }
  }

  /** A unit that fails to start is no error here. */
  async start(): Promise<void> {
    for (const { unit } of this.services) await this.host.run('systemctl', 'start', '--no-block', unit);
  }

  async look(): Promise<AgentView> {
    const views: AgentView[] = [];
    for (const service of this.services) views.push(await service.look());
    const [first] = views;
    const odd = views.find(({ version }) => version === null || version !== first?.version);
    return {
      version: odd === undefined ? (first?.version ?? null) : odd.version,
      online: views.every(({ online }) => online),
      tunnels: views.flatMap(({ tunnels }) => tunnels),
      sessions: views.reduce((sum, { sessions }) => sum + sessions, 0),
      ownAgents: views.reduce((sum, { ownAgents = 0 }) => sum + ownAgents, 0),
      restarts: Math.max(...views.map(({ restarts }) => restarts)),
    };
  }

  async before(): Promise<Before> {
    const all: Before[] = [];
    for (const service of this.services) all.push(await service.before());
    return {
      online: all.every(({ online }) => online),
      tunnels: all.flatMap(({ tunnels }) => tunnels),
      sessions: all.reduce((sum, { sessions }) => sum + sessions, 0),
      ownAgents: all.reduce((sum, { ownAgents }) => sum + ownAgents, 0),
      failed: all.flatMap(({ failed }) => failed),
    };
  }

  async essentials(known: readonly string[]): Promise<string | null> {
    try {
      for (const service of this.services) {
        const broken = await service.essentials(known);
        if (broken !== null) return broken;
      }
      return null;
    } catch (error) {
      return `doctor: ${messageOf(error)}`;
    }
  }

  /** How many seconds ago a service crashed, each time since the boot. */
  crashes: TrialMachine['agent']['crashes'] = async () => {
    const lines = await readFile(`${this.host.root}${CRASHES}`, 'utf8').catch((error: unknown) => {
      if (hasErrno(error, 'ENOENT')) return '';
      throw error;
    });
    return lines
      .split('\n')
      .filter(Boolean)
      .map((seconds) => uptime() - Number(seconds));
  };
}

/** This point in time. */
export async function thisMoment(): Promise<Moment> {
  const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8');
  return { boot: boot.trim(), uptime: uptime(), wall: Date.now() };
}
