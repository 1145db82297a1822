import { mkdir, readdir, readFile, rm, statfs } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { dirname, join } from 'node:path';
import { hasErrno, messageOf, OperatorError } from '../lib/errors.ts';
import { createFolder } from '../lib/files/durable-write.ts';
import type { ProxyRules } from '../lib/network/proxy-rules.ts';
import { rootCommand } from '../lib/process/own-command.ts';
import { systemClock } from '../lib/time/clock.ts';
import { PUBLISHED_UPDATES } from '../packaged.ts';
import type { Host } from '../service/host.ts';
import { AGENT_SERVICE, installedUnit, stateFolderOf } from '../service/service.ts';
import type { ProgramPaths } from '../service/unit.ts';
import { AgentService, thisMoment } from './agent-service.ts';
import { DataCopy } from './data-copy.ts';
import { installationAt } from './installations.ts';
import { type InstalledProgram, type Place, placeOf } from './installed-program.ts';
import { type Channel, fileFor, KeySet, openRelease, type Release, ReleaseRejected } from './release.ts';
import { newestKeys, requireNewest, whySettled, withRelease } from './release-choice.ts';
import { download, openSource, type ReleaseSource, readManifest } from './release-source.ts';
import { continueTrial } from './trial.ts';
import { CRASHES, installUpdateUnits, UPDATE_FOLDER, UPDATE_UNIT, WATCHER } from './units.ts';
import { diskFiles } from './update-files.ts';
import { type Outcome, type Trial, UpdateRecords } from './update-records.ts';

/** What a person, or the setting AGENT_UPDATE, asks for. */
export interface Wanted {
  channel: Channel;
  /** A version, also an older one; null: the newest one. */
  to: string | null;
  /** Where releases come from; null: where this program was published. */
  from: string | null;
  /** Only what the setting allows, and only while the device is online. */
  automatic: 'security' | 'stable' | null;
  proxies: ProxyRules;
}

/** What there is for this device. */
export interface Available {
  installed: string;
  release: Release;
  source: ReleaseSource;
  /** Why there is nothing to do; null: the release has to be installed. */
  settled: string | null;
}

/** Where an operator who publishes releases puts the keys, in place of those that came with the program. */
const KEY_FILE = '/etc/device-agent/update-keys.json';
const ARCHIVES = join(UPDATE_FOLDER, 'packages');
const DOWNLOADS = join(UPDATE_FOLDER, 'download');
/** Of the size of the file: itself, what it contains, and room for the log. */
const SPACE_FACTOR = 5;
/** What npm fetches besides, in bytes: packages with native code. */
const NPM_SPACE = 60e6;

/** Updates the agent of this machine. */
export class Updater {
  readonly #records = new UpdateRecords(UPDATE_FOLDER, diskFiles);
  readonly #installation: InstalledProgram;
  readonly #agent: AgentService;

  /**
   * @param program paths of the installed program
   * @throws {OperatorError} when it was installed in a way that has no updates
   */
  constructor(
    program: ProgramPaths,
    private readonly host: Host,
  ) {
    this.#installation = installationIn(placeOf(program), host);
    this.#agent = new AgentService(host, this.#installation.paths);
  }

  /**
   * Looks for a release, and remembers that it has seen it.
   *
   * @throws {ReleaseRejected} when what the source has is not a valid release for this device
   */
  async find({ channel, to, from, automatic, proxies }: Wanted): Promise<Available> {
    await createFolder(UPDATE_FOLDER, 0o700);
    const history = await this.#records.history();
    const trusted = newestKeys(await givenKeys(), history);
    if (trusted.keys.length === 0) {
      throw new OperatorError(
        `no update keys: this build trusts no publisher of releases; put the keys of yours in ${KEY_FILE} (docs/updates.md)`,
      );
    }
    const source = openSource(from ?? dirname(PUBLISHED_UPDATES.manifestUrl), proxies);
    const name = to === null ? NAMES[channel] : `manifest-${to}.json`;
    const release = openRelease(await readManifest(source, name), trusted, `${name} of ${source.shown}`);
    if (to === null) requireNewest(release, channel, history, Date.now());
    else if (release.version !== to) {
      throw new ReleaseRejected(
        `release rejected: ${name} of ${source.shown} is the one of version ${release.version}`,
      );
    }
    await this.#records.keepHistory(withRelease(history, release, trusted));
    const installed = await this.#installation.installed();
    const settled = whySettled({ installed, release, to, automatic }, history);
    return { installed, release, source, settled };
  }

  /**
   * Fetches a release, puts it beside the installed one, and starts the unit that tries it.
   *
   * @param tell takes a line about each step
   * @throws {OperatorError} with the installed version untouched
   */
  async begin({ installed, release, source }: Available, wanted: Wanted, tell: (line: string) => void): Promise<void> {
    const lock = await onlyUpdate();
    try {
      await this.#requireReady();
      const { place } = this.#installation;
      const file = fileFor(release, place.kind, process.arch);
      await mkdir(DOWNLOADS, { recursive: true, mode: 0o700 });
      await this.#requireSpace(file.size);
      // The agent's user reads the program.
      process.umask(0o022);
      const archive = join(DOWNLOADS, file.name);
      await removeOthers(DOWNLOADS, file.name);
      tell(`fetching version ${release.version} (${(file.size / 1e6).toFixed(1)} MB) from ${source.shown}`);
      await download(source, file, archive);
      // A further update confirms the one before it: staging removes what that would go back to.
      await this.#records.endTrial();
      await this.#installation.stage(release.version, archive);
      await rm(archive);
      const before = await this.#agent.before();
      if (wanted.automatic !== null && !before.online) {
        throw new OperatorError(
          'update postponed: the agent is not online, so nobody could tell whether the new version works',
        );
      }
      await this.#dataCopy().forget();
      await this.#installation.provideWatcher(WATCHER);
      await installUpdateUnits(this.#installation.paths, this.host);
      await rm(CRASHES, { force: true });
      const trial: Trial = {
        ...{ version: 1, state: 'staged', from: installed, to: release.version, place, before },
        ...{ attempts: 0, since: null, reason: null },
      };
      await this.#records.keepTrial(trial);
      await this.host.run('systemctl', 'start', '--no-block', UPDATE_UNIT);
    } finally {
      lock.close();
    }
  }

  /**
   * Waits for the end of the update under way.
   *
   * @returns how it ended
   */
  async end(): Promise<Outcome> {
    for (;;) {
      const trial = await this.#records.trial();
      if (trial === null || trial.state === 'probation') break;
      await systemClock.sleep(1_000);
    }
    const { last } = await this.#records.history();
    if (last !== null) return last;
    throw new OperatorError(`the update ended without a result; see: journalctl -u ${UPDATE_UNIT}`);
  }

  /** How the last update ended; null: there was none. */
  async last(): Promise<Outcome | null> {
    return (await this.#records.history()).last;
  }

  async #requireReady(): Promise<void> {
    if (!this.host.isBooted) throw new OperatorError('update not supported: systemd is not running on this machine');
    if (installedUnit(AGENT_SERVICE, this.host.root) === null) {
      throw new OperatorError(
        `service not installed: nothing would try the new version; run ${rootCommand('service install')} first`,
      );
    }
    const trial = await this.#records.trial();
    if (trial !== null && trial.state !== 'probation') {
      throw new OperatorError(`update to ${trial.to} under way (${trial.state}); see: journalctl -u ${UPDATE_UNIT}`);
    }
    const problem = await this.#installation.obstacle();
    if (problem !== null) throw new OperatorError(`update refused: ${problem}`);
  }

  async #requireSpace(size: number): Promise<void> {
    const { kind, folder: program } = this.#installation.place;
    const bytes = size * SPACE_FACTOR + (kind === 'npm' ? NPM_SPACE : 0);
    for (const folder of [UPDATE_FOLDER, program]) {
      const { bavail, bsize } = await statfs(folder);
      if (bavail * bsize >= bytes) continue;
      throw new OperatorError(
        `disk too full for an update: ${folder} needs ${Math.ceil(bytes / 1e6)} MB; free some space (df -h shows the usage)`,
      );
    }
  }

  #dataCopy(): DataCopy {
    return dataCopy(this.host);
  }
}

/** The file of a channel's newest release. */
const NAMES: Readonly<Record<Channel, string>> = { stable: 'manifest.json', beta: 'manifest-beta.json' };

/**
 * Goes on with the update under way, if any; the unit of updates runs this, in the version before it.
 *
 * @param tell takes the lines of the log
 */
export async function continueUpdate(host: Host, tell: (line: string) => void): Promise<void> {
  const records = new UpdateRecords(UPDATE_FOLDER, diskFiles);
  const trial = await records.trial();
  if (trial === null) return;
  const installation = installationIn(trial.place, host);
  const agent = new AgentService(host, installation.paths);
  const machine = {
    ...{ agent, data: dataCopy(host), clock: systemClock, moment: thisMoment, tell },
    installed: () => installation.installed(),
    switchTo: (version: string) => installation.switchTo(version),
  };
  await continueTrial(machine, records);
}

const installationIn = (place: Place, host: Host): InstalledProgram =>
  installationAt(place, ARCHIVES, diskFiles, host.run);

const dataCopy = (host: Host): DataCopy =>
  new DataCopy(stateFolderOf(AGENT_SERVICE), join(UPDATE_FOLDER, 'data-before.tar'), diskFiles, host.run);

async function givenKeys(): Promise<KeySet> {
  const { keySet: number, publicKeys: keys } = PUBLISHED_UPDATES;
  try {
    return KeySet.parse(JSON.parse(await readFile(KEY_FILE, 'utf8')));
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return { number, keys };
    throw new OperatorError(`cannot read ${KEY_FILE}: ${messageOf(error)}; docs/updates.md has its format`);
  }
}

/** A socket without a file, which the kernel closes with the process. */
const LOCK = '\0device-agent-update';

/** @throws {OperatorError} when another process prepares an update */
async function onlyUpdate(): Promise<Server> {
  const lock = createServer();
  await new Promise<void>((resolve, reject) => {
    lock.once('listening', resolve).once('error', (error) => {
      reject(
        hasErrno(error, 'EADDRINUSE') ? new OperatorError('another update is being prepared; wait for it') : error,
      );
    });
    lock.listen(LOCK);
  });
  return lock;
}

/** Parts of other downloads. */
async function removeOthers(folder: string, name: string): Promise<void> {
  for (const each of await readdir(folder)) {
    if (each !== name && each !== `${name}.part`) await rm(join(folder, each), { recursive: true });
  }
}
