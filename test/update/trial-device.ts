import { join } from 'node:path';
import { installationAt } from '../../src/update/installations.ts';
import type { InstalledProgram, Place } from '../../src/update/installed-program.ts';
import type { AgentView, TrialMachine } from '../../src/update/trial.ts';
import { continueTrial } from '../../src/update/trial.ts';
import { replaceLink } from '../../src/update/update-files.ts';
import { type Before, type Moment, UpdateRecords } from '../../src/update/update-records.ts';
import { PowerCutFiles } from '../support/power-cut-files.ts';

/** How a version behaves. */
export interface Behaviour {
  /** Whether the process answers at all; it then has its session unless the network is down. */
  answers: boolean;
  online: boolean;
  /** Tunnels that it does not bring online. */
  loses: readonly string[];
  /** Whether it ends right after each start. */
  crashes: boolean;
  /** What its doctor finds. */
  broken: string | null;
  /** How many agents its gateway has. */
  agents: number;
  /** Seconds after the boot from which on one of them is at this gateway of several. */
  hasOwnFrom: number;
  /** The format of data that it writes, and the newest one that it reads. */
  format: number;
}

export const GOOD: Behaviour = {
  answers: true,
  online: true,
  loses: [],
  crashes: false,
  broken: null,
  agents: 20,
  hasOwnFrom: 0,
  format: 1,
};

const STATE = '/state';
const DATA = '/data/tunnels.json';
const COPY = '/state/data-before';
const NODE_MODULES = '/usr/local/lib/node_modules';

/** Ways to install the program that tests can follow step by step, with the folders of the versions at first. */
const KINDS = {
  folder: {
    place: { kind: 'folder', folder: '/opt/device-agent', node: '/usr/bin/node' },
    trees: { '1.0.0': '/opt/device-agent/versions/1.0.0', '2.0.0': '/opt/device-agent/versions/2.0.0' },
  },
  npm: {
    place: { kind: 'npm', folder: `${NODE_MODULES}/device-agent`, node: '/usr/bin/node' },
    trees: { '1.0.0': `${NODE_MODULES}/device-agent`, '2.0.0': `${NODE_MODULES}/.device-agent-versions/2.0.0` },
  },
} as const satisfies Record<string, { place: Place; trees: Record<string, string> }>;
export type TrialKind = keyof typeof KINDS;
export const TRIAL_KINDS = Object.keys(KINDS) as TrialKind[];
/** A program is whole with all of these. */
const FILES = ['package.json', 'dist/cli.js'];

export const TUNNELS = ['https://one.example.com', 'https://two.example.com'];
const BEFORE: Before = { online: true, tunnels: TUNNELS, sessions: 0, ownAgents: 0, failed: [] };

/** Whose turn it is among gateways that share a database. */
export class SharedTurns {
  holder: string | null = null;
  /** Why a version was given up, by each. */
  readonly givenUp: string[] = [];
  /** Whether the shared database does not answer. */
  isAway = false;
}

/** A device with two versions on its disk, and a systemd that starts what is installed. */
export class TrialDevice {
  /** What the unit of updates has printed. */
  readonly told: string[] = [];
  /** The version that runs; null: no agent. */
  running: string | null = '1.0.0';
  /** Starts while an agent was running already; there must be none. */
  second = 0;
  isNetworkUp = true;
  /** Seconds since the boot. */
  uptime = 1_000;
  wall = Date.UTC(2026, 0, 1);
  crashedAt: number[] = [];
  /** Called with each start of the agent by the unit of updates. */
  onStart: () => void = () => {};
  /** Why the version before cannot have the data. */
  obstacle: string | null = null;
  /** Whether a gateway would make others wait with changes. */
  isHeld = false;
  #boot = 1;
  #restarts = 0;

  private constructor(
    public disk: PowerCutFiles,
    private readonly place: Place,
    private readonly versions: Readonly<Record<string, Behaviour>>,
    readonly turns: SharedTurns,
    readonly name: string,
  ) {}

  /** A device on which version 1.0.0 runs and 2.0.0 is staged. */
  static async staged(
    behaviour: Behaviour,
    random: () => number,
    kind: TrialKind = 'folder',
    turns: SharedTurns = new SharedTurns(),
    name = 'one',
  ): Promise<TrialDevice> {
    const disk = new PowerCutFiles(new Map(), random);
    const { place, trees } = KINDS[kind];
    for (const [version, folder] of Object.entries(trees)) {
      for (const path of FILES.map((name) => join(folder, name))) {
        await disk.write(path, JSON.stringify({ version }));
        await disk.sync(path);
      }
    }
    await disk.write(DATA, '1');
    await disk.sync(DATA);
    if (kind === 'folder') await replaceLink(disk, join(place.folder, 'current'), 'versions/1.0.0', place.folder);
    const device = new TrialDevice(disk, place, { '1.0.0': GOOD, '2.0.0': behaviour }, turns, name);
    await device.stageAgain();
    return device;
  }

  /** What the command does at its end. */
  async stageAgain(): Promise<void> {
    await this.records.keepTrial({
      ...{ version: 1, state: 'staged', from: '1.0.0', to: '2.0.0', place: this.place, before: BEFORE },
      ...{ attempts: 0, since: null, reason: null, isJudged: false, hasLostTurn: false },
      sharing: { node: { id: this.name, address: `${this.name}:443` } },
    });
    if (this.turns.holder === null) this.turns.holder = this.name;
  }

  get records(): UpdateRecords {
    return new UpdateRecords(STATE, this.disk);
  }

  /** Runs the unit of updates once. @returns what it failed with; null: it ended well */
  async runUnit(): Promise<unknown> {
    try {
      await continueTrial(this.#machine(), this.records);
      return null;
    } catch (error) {
      return error;
    }
  }

  /** The process of the unit is killed: systemd starts an agent if there is none, and the unit again. */
  async killed(): Promise<void> {
    this.disk.operationsLeft = Number.POSITIVE_INFINITY;
    if (this.running === null) await this.#startAgent();
  }

  /** The power is cut and returns: only what was synced is there, and systemd starts the agent at boot. */
  async powerCut(clockJump: number): Promise<void> {
    this.disk = this.disk.restart();
    this.#boot += 1;
    this.uptime = 20;
    this.wall += clockJump;
    this.running = null;
    this.crashedAt = [];
    await this.#startAgent();
  }

  pass(seconds: number): void {
    this.uptime += seconds;
    this.wall += seconds * 1000;
  }

  /** The agent crashes, and systemd starts it again. */
  crash(): void {
    this.crashedAt.push(this.uptime);
  }

  installed(): Promise<string> {
    return this.#installation.installed();
  }

  /** The version of the program that the service starts; null: it is not whole. */
  wholeProgram(): string | null {
    const folder = this.disk.textOf(join(this.place.folder, 'current'));
    const program = folder === undefined ? this.place.folder : join(this.place.folder, folder);
    const [version, ...others] = FILES.map((name) => this.disk.textOf(join(program, name)));
    if (version === undefined || others.some((text) => text !== version)) return null;
    return JSON.parse(version).version;
  }

  get #installation(): InstalledProgram {
    const run = (command: string) => Promise.reject(new Error(`a switch runs ${command}`));
    return installationAt(this.place, '/state/packages', this.disk, run);
  }

  /** Whether the running agent does what the one before the update did. */
  async works(): Promise<boolean> {
    const { version, online, tunnels } = this.#view();
    return version !== null && online && TUNNELS.every((url) => tunnels.includes(url));
  }

  async #startAgent(): Promise<void> {
    if (this.running !== null) this.second += 1;
    this.running = this.wholeProgram();
    // In the middle of a switch: systemd tries again, and the watcher completes it.
    if (this.running === null) return;
    this.#restarts = 0;
    const { format } = this.#behaviour();
    if (!this.#canRead()) return;
    // It writes its data in its own format, at once.
    this.disk.damage(DATA, String(format));
  }

  #behaviour(): Behaviour {
    return this.versions[this.running ?? ''] ?? GOOD;
  }

  #canRead(): boolean {
    return Number(this.disk.textOf(DATA)) <= this.#behaviour().format;
  }

  #view(): AgentView {
    const { answers, online, loses, crashes, agents, hasOwnFrom } = this.#behaviour();
    if (crashes) this.#restarts += 1;
    if (this.running === null || !answers || crashes || !this.#canRead()) {
      return { version: null, online: false, tunnels: [], sessions: 0, restarts: this.#restarts };
    }
    const isOnline = online && this.isNetworkUp;
    const tunnels = isOnline ? TUNNELS.filter((url) => !loses.includes(url)) : [];
    const sessions = isOnline ? agents : 0;
    const ownAgents = isOnline && this.uptime >= hasOwnFrom ? 1 : 0;
    return { version: this.running, online: isOnline, tunnels, sessions, ownAgents, restarts: 0 };
  }

  #machine(): TrialMachine {
    // The process can be killed, and the power cut, at each of these, too.
    const step = () => this.disk.list('/');
    return {
      installed: () => this.installed(),
      switchTo: (version) => this.#installation.switchTo(version),
      agent: {
        stop: async () => {
          await step();
          this.running = null;
        },
        start: async () => {
          await step();
          await this.#startAgent();
          this.onStart();
        },
        look: async () => {
          await step();
          return this.#view();
        },
        essentials: async () => {
          await step();
          return this.#behaviour().broken;
        },
        crashes: async () => this.crashedAt.map((at) => this.uptime - at),
      },
      data: {
        keep: async () => {
          await step();
          this.isHeld = true;
          if (this.disk.textOf(COPY) !== undefined) return;
          await this.disk.write(`${COPY}.tmp`, this.disk.textOf(DATA) ?? '');
          await this.disk.sync(`${COPY}.tmp`);
          await this.disk.rename(`${COPY}.tmp`, COPY);
          await this.disk.syncFolder();
        },
        obstacle: async () => this.obstacle,
        release: async () => {
          await step();
          this.isHeld = false;
        },
        restore: async () => {
          await step();
          const format = this.versions['1.0.0']?.format ?? 0;
          if (Number(this.disk.textOf(DATA)) > format) this.disk.damage(DATA, this.disk.textOf(COPY) ?? '');
        },
      },
      turn: {
        obstacle: async () => {
          await step();
          if (this.turns.isAway) return 'the shared database does not answer';
          return this.turns.holder === this.name ? null : 'it is not its turn';
        },
        end: async (_, reason) => {
          await step();
          if (this.turns.isAway) throw new Error('the shared database does not answer');
          if (this.turns.holder === this.name) this.turns.holder = null;
          if (reason !== null) this.turns.givenUp.push(reason);
        },
      },
      moment: async (): Promise<Moment> => ({ boot: String(this.#boot), uptime: this.uptime, wall: this.wall }),
      clock: {
        now: () => this.uptime * 1000,
        sleep: async (ms) => {
          await step();
          this.pass(ms / 1000);
        },
        after: () => () => {},
        random: () => 0.5,
      },
      tell: (line) => {
        // A process that was killed says nothing.
        if (this.disk.operationsLeft >= 0) this.told.push(line);
      },
    };
  }
}
